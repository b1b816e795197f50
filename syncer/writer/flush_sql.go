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
	insertFlushesHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at) VALUES "

	// The counters move by the rows that this very flush put into stock_flushes, and by nothing else. stock_flushes leads the
	// join, so that only the campaigns of the batch are locked, in order of their ids. remaining is computed from its own old
	// value only: MySQL assigns from left to right, and later columns see the new values.
	moveBooksMySQL = "UPDATE stock_flushes f STRAIGHT_JOIN campaigns c ON c.id = f.campaign_id" +
		" SET c.remaining = GREATEST(c.remaining - f.units, 0), c.claimed = c.claimed + f.units," +
		" c.synced_seq = c.synced_seq + f.claims, c.updated_at = ? WHERE f.id IN ("
	moveBooksSQLite = "UPDATE campaigns SET remaining = MAX(remaining - f.units, 0), claimed = claimed + f.units," +
		" synced_seq = synced_seq + f.claims, updated_at = ? FROM stock_flushes f WHERE campaigns.id = f.campaign_id AND f.id IN ("
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
		s.EndRow()
	}
	_, err := tx.ExecContext(ctx, s.SQL(), s.Args...)
	return ids, err
}

// moveBooks moves the counters of all campaigns of a flush by one UPDATE. It fails with errUnknownCampaign when one does not exist.
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
