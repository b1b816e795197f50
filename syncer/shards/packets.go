package shards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/migrations"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// The packets of a campaign of several shards are rows of packets. Those of shard 0 are the reserve. A grant has the next ones of the
// reserve be those of a shard, and gives them its number; a recall puts back those that Redis gave up. So MySQL knows of each packet where
// it may be: a load of a shard brings what is the shard's. A packet whose time of release has not come stays in the reserve.

// unreleased is how many packets of a campaign c have not been released at a time, which it takes as its argument.
const unreleased = "(SELECT COALESCE(SUM(b.packets), 0) FROM packet_batches b WHERE b.campaign_id = c.id AND b.release_at > ?)"

// errNotThere says that packets that Redis gave up are not its shard's, or have owners, by their rows.
var errNotThere = errors.New("shards: packets that redis gave up can't go back to the reserve; rebuild the shard")

// dealtRow is a row of packets.
type dealtRow struct {
	position  int64
	packet    models.Packet
	releaseMs int64
}

// packetsOf is what a query finds of packets.
func (s *store) packetsOf(ctx context.Context, query string, args ...any) (rows []dealtRow, err error) {
	pool, err := s.db.DB()
	if err != nil {
		return nil, err
	}
	err = sqlstore.ScanAll(ctx, pool, "SELECT position, id, amount, release_at FROM packets"+dealt(s.db.Name())+query, args,
		func(scan func(...any) error) error {
			var row dealtRow
			var release sql.NullTime
			err := scan(&row.position, &row.packet.ID, &row.packet.Amount, &release)
			row.releaseMs = campaigns.ReleaseMs(release)
			rows = append(rows, row)
			return err
		})
	return rows, err
}

// dealt has a query on packets use the index of what shards have.
func dealt(dialect string) string {
	if dialect == migrations.SQLite {
		return " INDEXED BY packets_dealt"
	}
	return " FORCE INDEX (packets_dealt)"
}

// pick has a grant take the next packets of the reserve, up to its want, all of one time of release, and returns their positions. Two
// grants may pick the same: the second finds them taken.
func (s *store) pick(ctx context.Context, move *models.StockMove) (positions []int64, err error) {
	rows, err := s.packetsOf(ctx, " WHERE campaign_id = ? AND shard = 0 AND (release_at IS NULL OR release_at <= ?)"+
		" AND claim_id IS NULL AND returned_at IS NULL ORDER BY release_at, position LIMIT ?",
		move.CampaignID, sqlstore.Now().Format(sqlstore.TimeLayout), min(move.Want, lua.PushMax))
	if err != nil {
		return nil, fmt.Errorf("shards: reserve of %s: %w", move.CampaignID, err)
	}
	for i := range rows {
		if rows[i].releaseMs != rows[0].releaseMs {
			break
		}
		positions = append(positions, rows[i].position)
		move.Packets = append(move.Packets, rows[i].packet)
		move.ReleaseMs = rows[i].releaseMs
	}
	move.Want = int64(len(positions))
	return positions, nil
}

// deal gives picked packets to the shard of a grant, within its first transaction.
func (s *store) deal(ctx context.Context, tx *sql.Tx, move *models.StockMove, positions []int64) error {
	args := []any{move.Shard, move.No, move.CampaignID}
	for _, p := range positions {
		args = append(args, p)
	}
	return changed(len(positions), errElse)(tx.ExecContext(ctx, "UPDATE packets"+campaigns.ByPosition(s.db.Name())+
		" SET shard = ?, move_no = ? WHERE campaign_id = ? AND shard = 0 AND claim_id IS NULL AND returned_at IS NULL"+
		" AND position IN "+sqlstore.Marks(len(positions)), args...))
}

// putBack gives the packets of a recall back to the reserve, within its second transaction.
func (s *store) putBack(ctx context.Context, tx *sql.Tx, move *models.StockMove) error {
	args := []any{move.CampaignID, move.Shard}
	for i := range move.Packets {
		args = append(args, move.Packets[i].ID)
	}
	index := " FORCE INDEX (PRIMARY)"
	if s.db.Name() == migrations.SQLite {
		index = ""
	}
	return changed(len(move.Packets), errNotThere)(tx.ExecContext(ctx, "UPDATE packets"+index+
		" SET shard = 0, move_no = 0 WHERE campaign_id = ? AND shard = ? AND claim_id IS NULL"+
		" AND id IN "+sqlstore.Marks(len(move.Packets)), args...))
}

// granted reads the packets of an open grant. found is false when it is not open any more. They are mostly the last of their shard: from
// the end they are found without a look at the others, of which there may be hundreds of thousands.
func (s *store) granted(ctx context.Context, move *models.StockMove) (found bool, err error) {
	rows, err := s.packetsOf(ctx, " WHERE campaign_id = ? AND shard = ? AND move_no = ?"+
		" ORDER BY release_at DESC, position DESC LIMIT ?", move.CampaignID, move.Shard, move.No, move.Want)
	if err != nil {
		return false, fmt.Errorf("shards: packets of move %d of %s: %w", move.No, models.ShardID(move.CampaignID, move.Shard), err)
	}
	slices.Reverse(rows)
	for i := range rows {
		move.Packets = append(move.Packets, rows[i].packet)
		move.ReleaseMs = rows[i].releaseMs
	}
	return int64(len(rows)) == move.Want, nil
}

// changed returns otherwise unless a statement changed so many rows.
func changed(rows int, otherwise error) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n != int64(rows) {
			err = sqlstore.Final(otherwise)
		}
		return err
	}
}
