package writer

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/migrations"
	"dibs/models"

	"github.com/google/uuid"
)

const (
	insertClaimsHead = "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch," +
		" packet_id, amount, claimed_at, synced_at) VALUES "
	insertFlushesHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at," +
		" first_claimed_ms, last_claimed_ms) VALUES "

	// The counters move by the rows that this very flush put into stock_flushes, and by nothing else. stock_flushes leads the
	// join, so that only the campaigns of the batch are locked, in order of their ids. remaining is computed from its own old
	// value only: MySQL assigns from left to right, and later columns see the new values.
	moveBooksMySQL = "UPDATE stock_flushes f STRAIGHT_JOIN campaigns c ON c.id = f.campaign_id" +
		" SET c.remaining = GREATEST(c.remaining - f.units, 0), c.claimed = c.claimed + f.units," +
		" c.holds_mixed = CASE WHEN c.hold_for_ms > 0 AND (" + isMixed + ") THEN c.holds_mixed + 1 ELSE c.holds_mixed END," +
		" c.next_due_ms = CASE WHEN c.hold_for_ms > 0" +
		" THEN LEAST(COALESCE(c.next_due_ms, " + never + "), f.first_claimed_ms + c.hold_for_ms) END," +
		" c.last_claimed_ms = CASE WHEN c.hold_for_ms > 0 THEN GREATEST(c.last_claimed_ms, f.last_claimed_ms) ELSE 0 END," +
		" c.settled_seq = LEAST(c.settled_seq, f.first_seq - 1)," +
		" c.synced_seq = c.synced_seq + f.claims, c.updated_at = ? WHERE c.archived_claims = 0 AND f.id IN ("
	moveBooksSQLite = "UPDATE campaigns AS c SET remaining = MAX(c.remaining - f.units, 0), claimed = c.claimed + f.units," +
		" holds_mixed = CASE WHEN c.hold_for_ms > 0 AND (" + isMixed + ") THEN c.holds_mixed + 1 ELSE c.holds_mixed END," +
		" next_due_ms = CASE WHEN c.hold_for_ms > 0" +
		" THEN MIN(COALESCE(c.next_due_ms, " + never + "), f.first_claimed_ms + c.hold_for_ms) END," +
		" last_claimed_ms = CASE WHEN c.hold_for_ms > 0 THEN MAX(c.last_claimed_ms, f.last_claimed_ms) ELSE 0 END," +
		" settled_seq = MIN(c.settled_seq, f.first_seq - 1)," +
		" synced_seq = c.synced_seq + f.claims, updated_at = ? FROM stock_flushes f" +
		" WHERE c.id = f.campaign_id AND c.archived_claims = 0 AND f.id IN ("

	// isMixed tells that a claim may expire 2 s or more before one with a lower seq: it was made before a claim that is there, or it
	// stands before some that are there and was made after them.
	isMixed = "f.first_claimed_ms < c.last_claimed_ms - 2000 OR f.first_seq <= c.synced_seq AND f.last_claimed_ms > c.last_claimed_ms + 2000"
	never   = "9223372036854775807" // milliseconds
)

// insertClaims inserts all rows into claims, or fails: with FailureDuplicate when a claim with the id or the seq of one exists.
func insertClaims(ctx context.Context, tx *sql.Tx, dialect string, rows []*row, syncedAt time.Time) error {
	for chunk := range slices.Chunk(rows, sqlstore.RowsPerInsert(dialect)) {
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
	s.Int(0) // shard
	s.Int(e.Seq)
	s.Text(e.UserID)
	s.Int(e.Quantity)
	s.Text(string(models.ClaimClaimed))
	s.Text(e.Key)
	s.Int(e.Epoch)
	s.TextOrNull(e.PacketID)
	s.IntOrNull(e.Amount)
	s.Time(e.At.Time)
	s.Quoted(synced)
	s.EndRow()
}

// insertFlushes inserts a row a campaign into stock_flushes, in order of the campaigns' ids, and returns the ids of the rows.
func insertFlushes(ctx context.Context, tx *sql.Tx, sums map[string]*tally, took time.Duration, now time.Time) ([]string, error) {
	s := sqlstore.NewStatement(insertFlushesHead, len(sums)*sqlstore.RowBytes)
	ids := make([]string, 0, len(sums))
	for i, campaignID := range slices.Sorted(maps.Keys(sums)) {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id.String())
		sum := sums[campaignID]
		s.BeginRow(i)
		s.Text(id.String())
		s.Text(campaignID)
		s.Int(sum.units)
		s.Int(sum.claims)
		s.Int(sum.firstSeq)
		s.Int(sum.lastSeq)
		s.Int(took.Milliseconds())
		s.Time(now)
		s.Int(sum.firstMs)
		s.Int(sum.lastMs)
		s.EndRow()
	}
	_, err := tx.ExecContext(ctx, s.SQL(), s.Args...)
	return ids, err
}

// moveBooks moves the counters of all campaigns of a flush by one UPDATE. It fails with errUnknownCampaign when one does not
// exist, or has all its claims and some of them in the archive.
func moveBooks(ctx context.Context, tx *sql.Tx, dialect string, flushIDs []string, now time.Time) error {
	head := moveBooksMySQL
	if dialect == migrations.SQLite {
		head = moveBooksSQLite
	}
	query := head + "'" + strings.Join(flushIDs, "','") + "')" //nolint:gosec // the ids are UUIDs made here
	result, err := tx.ExecContext(ctx, query, now.UTC().Format(sqlstore.TimeLayout))
	if err != nil {
		return err
	}
	// synced_seq grows in each row that matches, so as many rows are changed as match.
	moved, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if moved != int64(len(flushIDs)) {
		return sqlstore.Final(errUnknownCampaign)
	}
	return nil
}
