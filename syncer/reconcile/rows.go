package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"slices"

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

// snapshot reads as much of a campaign as depth asks for.
func (r *Reconciler) snapshot(ctx context.Context, id string, depth Depth) (*snapshot, error) {
	if depth < DepthUsers {
		plain, err := r.snapshots(ctx, []string{id}, depth)
		if err != nil || plain[id] != nil {
			return plain[id], err
		}
	}
	s := &snapshot{}
	return s, sqlstore.InSnapshot(ctx, r.db, func(tx *sqlstore.Tx) (err error) {
		s.untold, err = readBooks(ctx, tx, id, &s.campaign)
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

// snapshots reads the campaigns of which one statement tells as much as depth, at most DepthRows, asks for. The others are those that
// have parked events or packets.
func (r *Reconciler) snapshots(ctx context.Context, ids []string, depth Depth) (map[string]*snapshot, error) {
	plain := make(map[string]*snapshot, len(ids))
	if len(ids) == 0 {
		return plain, nil
	}
	in := sqlstore.Marks(len(ids))
	args := sqlstore.Args(ids)
	columns := ", 0, 0, 0, 0"
	join := ""
	if depth >= DepthRows {
		columns = ", COALESCE(r.claims, 0), COALESCE(r.units, 0), COALESCE(r.last, 0), COALESCE(r.released, 0)"
		join = " LEFT JOIN (SELECT campaign_id, shard, " + rowSums + " FROM claims" +
			" WHERE campaign_id IN (SELECT campaign_id FROM lots WHERE id IN " + in + ") GROUP BY campaign_id, shard) r" +
			" ON r.campaign_id = lots.campaign_id AND r.shard = lots.shard"
		args = slices.Concat(args, args)
	}
	err := sqlstore.ScanAll(ctx, r.db.ConnPool, "SELECT "+bookColumns+columns+" FROM defined_lots AS lots"+join+" WHERE lots.id IN "+in, args,
		func(scan func(...any) error) error {
			s := &snapshot{parked: &writer.ParkedClaims{}}
			c := &s.campaign
			parked := false
			var rows RowFigures
			err := scan(append(intoBooks(c, &s.untold, &parked), &rows.Claims, &rows.Units, &rows.Last, &rows.Released)...)
			if err != nil || parked || depth >= DepthRows && c.Kind == models.KindPacket {
				return err
			}
			if depth >= DepthRows {
				rows.addArchived(c)
				s.rows = &rows
			}
			plain[c.ID] = s
			return nil
		})
	return plain, err
}

// bookColumns are what comparisons and repairs need of a lot; how many releases wait in outbox; whether events are parked.
const bookColumns = "lots.id, kind, partition_no, time_zone, total, version, applied_version, epoch, residency, residency_reason," +
	" residency_at, redis_total, remaining, claimed, synced_seq, lost_claims, released_claims, status, seen_seq, per_user," +
	" per_user_per_day, limits, shards, archived_claims, archived_units, archived_released," +
	" (SELECT COUNT(*) FROM outbox WHERE outbox.campaign_id = lots.id AND outbox.kind = '" + string(models.OutboxRelease) + "')," +
	" EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id)"

func intoBooks(c *models.Campaign, untold *int64, parked *bool) []any {
	return []any{
		&c.ID, &c.Kind, &c.Partition, &c.TimeZone, &c.Total, &c.Version, &c.AppliedVersion, &c.Epoch, &c.Residency, &c.ResidencyReason,
		&c.ResidencyAt, &c.RedisTotal, &c.Remaining, &c.Claimed, &c.SyncedSeq, &c.LostClaims, &c.ReleasedClaims, &c.Status, &c.SeenSeq,
		&c.PerUser, &c.PerUserPerDay, &c.Limits, &c.Shards, &c.ArchivedClaims, &c.ArchivedUnits, &c.ArchivedReleased,
		untold, parked,
	}
}

// readBooks reads a lot with bookColumns.
func readBooks(ctx context.Context, tx *sqlstore.Tx, id string, c *models.Campaign) (untold int64, err error) {
	parked := false
	err = tx.QueryRowContext(ctx, "SELECT "+bookColumns+" FROM defined_lots AS lots WHERE id = ?", id).Scan(intoBooks(c, &untold, &parked)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = models.ErrNotFound
	}
	return untold, err
}

// rowSums adds up rows of claims.
const rowSums = "COUNT(*) AS claims, COALESCE(SUM(CASE WHEN " + liveClaims + " THEN quantity ELSE 0 END), 0) AS units," +
	" COALESCE(MAX(seq), 0) AS last, COALESCE(SUM(CASE WHEN " + liveClaims + " THEN 0 ELSE 1 END), 0) AS released"

// accounted adds up the claims of a campaign, whose books were read in the same transaction, that MySQL accounts for: those that have a
// row, and those whose rows were moved away.
func accounted(ctx context.Context, tx *sqlstore.Tx, c *models.Campaign) (*RowFigures, error) {
	var rows RowFigures
	campaignID, shard := models.SplitShardID(c.ID)
	err := tx.QueryRowContext(ctx, "SELECT "+rowSums+" FROM claims WHERE campaign_id = ? AND shard = ?", campaignID, shard).
		Scan(&rows.Claims, &rows.Units, &rows.Last, &rows.Released)
	rows.addArchived(c)
	return &rows, err
}

// addArchived adds the claims whose rows were moved away.
func (r *RowFigures) addArchived(c *models.Campaign) {
	r.Archived = c.ArchivedClaims
	r.Claims += c.ArchivedClaims
	r.Units += c.ArchivedUnits
	r.Released += c.ArchivedReleased
	if c.ArchivedClaims > 0 {
		r.Last = max(r.Last, c.SyncedSeq) // the last may be among the archived
	}
}

// readUsers adds up what each user holds, as a load into Redis would. A limit that was added while Redis held the campaign counts from the
// moment at which Redis got it.
func (r *Reconciler) readUsers(
	ctx context.Context, tx *sqlstore.Tx, c *models.Campaign, parked *writer.ParkedClaims,
) (*lua.UserRecords, error) {
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
	return users, residency.EachClaim(ctx, tx, c.ID, parked.BySeq(), func(p *lua.ClaimRecord) error {
		users.Add(p)
		return nil
	})
}
