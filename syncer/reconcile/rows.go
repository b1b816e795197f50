package reconcile

import (
	"context"
	"database/sql"
	"errors"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/residency"
	"dibs/syncer/writer"
)

// liveClaims is the condition of claims that count against stock and limits.
const liveClaims = "status IN ('" + string(models.ClaimClaimed) + "', '" + string(models.ClaimRedeemed) + "')"

// snapshot is what MySQL says of a campaign at one moment.
type snapshot struct {
	campaign models.Campaign
	parked   *writer.ParkedClaims
	rows     *RowFigures      // nil: not counted
	packets  *PacketFigures   // nil: not counted
	users    *lua.UserRecords // nil: not read
	untold   int64            // releases that wait in outbox
}

// snapshot reads as much as depth asks for.
func (r *Reconciler) snapshot(ctx context.Context, id string, depth Depth) (*snapshot, error) {
	s := &snapshot{}
	return s, sqlstore.InSnapshot(ctx, r.db, func(tx *sql.Tx) (err error) {
		if err := readBooks(ctx, tx, id, &s.campaign); err != nil {
			return err
		}
		s.untold, err = countUntold(ctx, tx, id)
		if err != nil {
			return err
		}
		s.parked, err = writer.ReadParked(ctx, tx, id)
		if err != nil || depth < DepthRows {
			return err
		}
		s.rows, err = accounted(ctx, tx, &s.campaign)
		if err != nil {
			return err
		}
		if s.campaign.Kind == models.KindPacket {
			s.packets, err = countPackets(ctx, tx, id, s.rows.Claims, depth >= DepthUsers)
			if err != nil {
				return err
			}
		}
		if depth >= DepthUsers {
			s.users, err = r.readUsers(ctx, tx, &s.campaign, s.parked)
		}
		return err
	})
}

// readBooks reads what comparisons and repairs need of a campaign.
func readBooks(ctx context.Context, tx *sql.Tx, id string, c *models.Campaign) error {
	err := tx.QueryRowContext(ctx, "SELECT id, kind, `partition`, time_zone, total, version, applied_version, epoch, residency,"+
		" residency_reason, residency_at, redis_total, remaining, claimed, synced_seq, lost_claims, released_claims,"+
		" status, seen_seq, per_user, per_user_per_day, limits,"+
		" shards, tseq, archived_claims, archived_units, archived_released"+
		" FROM lots WHERE id = ?", id).
		Scan(&c.ID, &c.Kind, &c.Partition, &c.TimeZone, &c.Total, &c.Version, &c.AppliedVersion, &c.Epoch, &c.Residency, &c.ResidencyReason,
			&c.ResidencyAt, &c.RedisTotal, &c.Remaining, &c.Claimed, &c.SyncedSeq, &c.LostClaims, &c.ReleasedClaims,
			&c.Status, &c.SeenSeq, &c.PerUser, &c.PerUserPerDay, &c.Limits,
			&c.Shards, &c.TSeq, &c.ArchivedClaims, &c.ArchivedUnits, &c.ArchivedReleased)
	if errors.Is(err, sql.ErrNoRows) {
		return models.ErrNotFound
	}
	return err
}

// accounted adds up the claims of a campaign, whose books were read in the same transaction, that MySQL accounts for: those that have a
// row, and those whose rows were moved away.
func accounted(ctx context.Context, tx *sql.Tx, c *models.Campaign) (*RowFigures, error) {
	var rows RowFigures
	campaignID, shard := models.SplitShardID(c.ID)
	err := tx.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(CASE WHEN "+liveClaims+" THEN quantity ELSE 0 END), 0),"+
		" COALESCE(MAX(seq), 0), COALESCE(SUM(CASE WHEN "+liveClaims+" THEN 0 ELSE 1 END), 0)"+
		" FROM claims WHERE campaign_id = ? AND shard = ?", campaignID, shard).Scan(&rows.Claims, &rows.Units, &rows.Last, &rows.Released)
	rows.Archived = c.ArchivedClaims
	if rows.Archived > 0 {
		rows.Claims = rows.Claims + rows.Archived
		rows.Units = rows.Units + c.ArchivedUnits
		rows.Released = rows.Released + c.ArchivedReleased
		rows.Last = max(rows.Last, c.SyncedSeq) // the last may be among the archived
	}
	return &rows, err
}

// readUsers adds up what each user holds, as a load into Redis would. A limit that was added while Redis held the campaign counts from the
// moment at which Redis got it.
func (r *Reconciler) readUsers(ctx context.Context, tx *sql.Tx, c *models.Campaign, parked *writer.ParkedClaims) (*lua.UserRecords, error) {
	inRedis := *c
	if len(c.Limits) > 0 {
		state, err := r.scripts.State(ctx, c.ID)
		if err == nil && state.Version == c.Version { // else the comparison with Redis finds out
			inRedis.Limits = state.Limits()
		}
	}
	users, err := lua.NewUserRecords(&inRedis, c.SyncedSeq)
	if err != nil {
		return nil, err
	}
	return users, residency.EachClaim(ctx, tx, r.db.Name(), c.ID, parked.BySeq(), func(p *lua.ClaimRecord) error {
		users.Add(p)
		return nil
	})
}
