package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/writer"
)

// liveClaims is the condition of claims that count against stock and limits.
const liveClaims = "status IN ('" + string(models.ClaimClaimed) + "', '" + string(models.ClaimRedeemed) + "')"

// snapshot is what MySQL says of a campaign at one moment.
type snapshot struct {
	campaign models.Campaign
	parked   *writer.ParkedClaims
	rows     *RowFigures     // nil: not counted
	packets  *PacketFigures  // nil: not counted
	users    map[string]held // nil: not read
	untold   int64           // releases that wait in outbox
}

// held is what a user holds by the rows: units in all, and on the day of the newest claim.
type held struct{ total, day, onDay int64 }

// snapshot reads as much as depth asks for.
func (r *Reconciler) snapshot(ctx context.Context, id string, depth Depth) (*snapshot, error) {
	pool, err := r.cfg.DB.DB()
	if err != nil {
		return nil, fmt.Errorf("syncer: compare: %w", err)
	}
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sqlstore.SnapshotIsolation(r.cfg.DB), ReadOnly: r.cfg.DB.Name() != "sqlite"})
	if err != nil {
		return nil, fmt.Errorf("syncer: compare: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	s := &snapshot{}
	if err := readBooks(ctx, tx, id, &s.campaign); err != nil {
		return nil, err
	}
	if s.untold, err = countUntold(ctx, tx, id); err != nil {
		return nil, err
	}
	if s.parked, err = writer.ReadParked(ctx, tx, id); err != nil {
		return nil, err
	}
	if depth >= DepthRows {
		if s.rows, err = countRows(ctx, tx, id); err != nil {
			return nil, err
		}
		if s.campaign.Kind == models.KindPacket {
			if s.packets, err = countPackets(ctx, tx, id, s.rows.Claims, depth >= DepthUsers); err != nil {
				return nil, err
			}
		}
	}
	if depth >= DepthUsers {
		s.users, err = readUsers(ctx, tx, &s.campaign, s.parked)
	}
	return s, err
}

// readBooks reads what comparisons and repairs need of a campaign.
func readBooks(ctx context.Context, tx *sql.Tx, id string, c *models.Campaign) error {
	err := tx.QueryRowContext(ctx, "SELECT id, kind, `partition`, time_zone, total, version, applied_version, epoch, residency,"+
		" residency_reason, remaining, claimed, synced_seq, lost_claims, released_claims FROM campaigns WHERE id = ?", id).
		Scan(&c.ID, &c.Kind, &c.Partition, &c.TimeZone, &c.Total, &c.Version, &c.AppliedVersion, &c.Epoch, &c.Residency, &c.ResidencyReason,
			&c.Remaining, &c.Claimed, &c.SyncedSeq, &c.LostClaims, &c.ReleasedClaims)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("syncer: campaign %s: %w", id, models.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("syncer: campaign %s: %w", id, err)
	}
	return nil
}

func countRows(ctx context.Context, tx *sql.Tx, id string) (*RowFigures, error) {
	var rows RowFigures
	err := tx.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(CASE WHEN "+liveClaims+" THEN quantity ELSE 0 END), 0),"+
		" COALESCE(MAX(seq), 0), COALESCE(SUM(CASE WHEN "+liveClaims+" THEN 0 ELSE 1 END), 0)"+
		" FROM claims WHERE campaign_id = ? AND shard = 0", id).Scan(&rows.Claims, &rows.Units, &rows.Last, &rows.Released)
	if err != nil {
		return nil, fmt.Errorf("syncer: count claims of %s: %w", id, err)
	}
	return &rows, nil
}

// readUsers adds up what each user holds, as a load into Redis would.
func readUsers(ctx context.Context, tx *sql.Tx, c *models.Campaign, parked *writer.ParkedClaims) (map[string]held, error) {
	zone, err := c.Location()
	if err != nil {
		return nil, fmt.Errorf("syncer: campaign %s: %w", c.ID, err)
	}
	rows, err := tx.QueryContext(ctx, "SELECT user_id, quantity, claimed_at, status FROM claims"+
		" WHERE campaign_id = ? AND shard = 0", c.ID)
	if err != nil {
		return nil, fmt.Errorf("syncer: read claims of %s: %w", c.ID, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	users := make(map[string]held)
	for rows.Next() {
		var user string
		var quantity int64
		var at time.Time
		var status models.ClaimStatus
		if err := rows.Scan(&user, &quantity, &at, &status); err != nil {
			return nil, fmt.Errorf("syncer: read claims of %s: %w", c.ID, err)
		}
		if !status.Live() {
			quantity = 0 // its day had begun, though
		}
		users[user] = users[user].with(quantity, dayNumber(at, zone))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("syncer: read claims of %s: %w", c.ID, err)
	}
	for _, p := range parked.BySeq() {
		users[p.Event.UserID] = users[p.Event.UserID].with(p.Event.Quantity, dayNumber(p.Event.At.Time, zone))
	}
	return users, nil
}

func (h held) with(quantity, day int64) held {
	h.total += quantity
	switch {
	case day > h.day:
		h.day, h.onDay = day, quantity
	case day == h.day:
		h.onDay += quantity
	}
	return h
}

// dayNumber is the date that a moment has in a zone, as days since 1970-01-01.
func dayNumber(at time.Time, zone *time.Location) int64 {
	y, m, d := at.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}
