package writer

import (
	"context"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
)

const (
	insertClaimsHead = "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, subjects, epoch," +
		" packet_id, amount, claimed_at, synced_at) VALUES "
	insertFlushesHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at," +
		" first_claimed_ms, due_ms, shard) VALUES "
)

// insertClaims inserts all rows into claims, or fails: with FailureDuplicate when a claim with the id or the seq of one exists.
func insertClaims(ctx context.Context, tx *sqlstore.Tx, rows []*row, syncedAt time.Time) error {
	for chunk := range slices.Chunk(rows, sqlstore.RowsPerInsert(tx)) {
		s := sqlstore.NewStatement(insertClaimsHead, len(chunk)*sqlstore.RowBytes)
		synced := syncedAt.UTC().Format(sqlstore.TimeLayout)
		for i, r := range chunk {
			addClaim(s, i, &r.event, synced)
		}
		if _, err := tx.ExecContext(ctx, s.SQL(), s.Args...); err != nil {
			return err
		}
	}
	return nil
}

// addClaim adds the row of a claim to an INSERT.
func addClaim(s *sqlstore.Statement, i int, e *models.Event, synced string) {
	s.BeginRow(i)
	s.Text(e.ID)
	s.Text(e.CampaignID)
	s.Int(int64(e.Shard))
	s.Int(e.Seq)
	s.Text(e.UserID)
	s.Int(e.Quantity)
	s.Text(string(models.ClaimClaimed))
	s.Text(e.Key)
	s.TextOrNull(e.Subjects.JSON())
	s.Int(e.Epoch)
	s.TextOrNull(e.PacketID)
	s.IntOrNull(e.Amount)
	s.Time(e.At.Time)
	s.Quoted(synced)
	s.EndRow()
}

// holdsOf reads how long claims of lots are held, of those that hold them. It never changes.
func holdsOf(ctx context.Context, q sqlstore.Querier, sums map[string]*tally) (holdForMs map[string]int64, err error) {
	holdForMs = make(map[string]int64)
	args := make([]any, 0, len(sums))
	for lotID := range sums {
		args = append(args, lotID)
	}
	query := "SELECT id, hold_for_ms FROM lots WHERE hold_for_ms > 0 AND id IN " + sqlstore.Marks(len(args))
	err = sqlstore.ScanAll(ctx, q, query, args, func(scan func(...any) error) error {
		var id string
		var ms int64
		err := scan(&id, &ms)
		holdForMs[id] = ms
		return err
	})
	return holdForMs, err
}

// insertFlushes inserts a row a campaign, or a shard, into stock_flushes, and returns the ids of the rows by lot.
// The row of a campaign that holds claims says when the first hold ends.
func insertFlushes(
	ctx context.Context, tx *sqlstore.Tx, sums map[string]*tally, holdForMs map[string]int64, took time.Duration, now time.Time,
) (ids map[string]string, err error) {
	s := sqlstore.NewStatement(insertFlushesHead, len(sums)*sqlstore.RowBytes)
	ids = make(map[string]string, len(sums))
	for _, lotID := range slices.Sorted(maps.Keys(sums)) {
		if sums[lotID].claims == 0 {
			continue
		}
		campaignID, shard := models.SplitShardID(lotID)
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		sum := sums[lotID]
		s.BeginRow(len(ids))
		ids[lotID] = id.String()
		s.Text(id.String())
		s.Text(campaignID)
		s.Int(sum.units)
		s.Int(sum.claims)
		s.Int(sum.firstSeq)
		s.Int(sum.lastSeq)
		s.Int(took.Milliseconds())
		s.Time(now)
		s.Int(sum.firstMs)
		var due *int64
		if hold, isHeld := holdForMs[lotID]; isHeld {
			due = new(sum.firstMs + hold)
		}
		s.IntOrNull(due)
		s.Int(int64(shard))
		s.EndRow()
	}
	if len(ids) == 0 {
		return ids, nil
	}
	_, err = tx.ExecContext(ctx, s.SQL(), s.Args...)
	return ids, err
}
