package syncer

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"dibs/migrations"
	"dibs/models"
)

const (
	// rowsPerInsert bounds a statement well below the packet limit of MySQL and the statement limit of SQLite.
	rowsPerInsert       = 2000
	rowsPerInsertSQLite = 500
	// rowBytes is about what a row takes in a statement.
	rowBytes = 256

	sqlTimeLayout = "2006-01-02 15:04:05.000"

	insertClaimsHead = "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch," +
		" packet_id, amount, claimed_at, synced_at) VALUES "
	insertFlushesHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at) VALUES "

	// The books move by the ledger rows of this very flush, and by nothing else. stock_flushes leads the join, so that just
	// the campaigns of the batch are locked, in order of their ids. remaining is computed from its own old value only,
	// because MySQL hands assigned values on from left to right.
	moveBooksMySQL = "UPDATE stock_flushes f STRAIGHT_JOIN campaigns c ON c.id = f.campaign_id" +
		" SET c.remaining = GREATEST(c.remaining - f.units, 0), c.claimed = c.claimed + f.units," +
		" c.synced_seq = c.synced_seq + f.claims, c.updated_at = ? WHERE f.id IN ("
	moveBooksSQLite = "UPDATE campaigns SET remaining = MAX(remaining - f.units, 0), claimed = claimed + f.units," +
		" synced_seq = synced_seq + f.claims, updated_at = ? FROM stock_flushes f WHERE campaigns.id = f.campaign_id AND f.id IN ("
)

// insertClaims puts all rows into claims, or fails: with failureDuplicate when one is there already, by its id or its place.
func insertClaims(ctx context.Context, tx *sql.Tx, dialect string, rows []*row, syncedAt time.Time) error {
	most := rowsPerInsert
	if dialect == migrations.SQLite {
		most = rowsPerInsertSQLite
	}
	for chunk := range slices.Chunk(rows, most) {
		s := newStatement(insertClaimsHead, len(chunk)*rowBytes)
		synced := syncedAt.UTC().Format(sqlTimeLayout)
		for i, r := range chunk {
			s.claim(i, &r.event, synced)
		}
		if _, err := tx.ExecContext(ctx, s.text(), s.args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *statement) claim(i int, e *models.Event, synced string) {
	s.open(i)
	s.string(e.ID)
	s.string(e.CampaignID)
	s.int(0) // shard
	s.int(e.Seq)
	s.string(e.UserID)
	s.int(e.Quantity)
	s.string(string(models.ClaimClaimed))
	s.string(e.Key)
	s.int(e.Epoch)
	s.stringOrNull(e.PacketID)
	s.intOrNull(e.Amount)
	s.time(e.At.Time)
	s.quoted(synced)
	s.close()
}

// insertFlushes writes the ledger, a row a campaign in order of their ids, and returns the ids of the rows.
func insertFlushes(ctx context.Context, tx *sql.Tx, sums map[string]*tally, took time.Duration, now time.Time) ([]string, error) {
	s := newStatement(insertFlushesHead, len(sums)*rowBytes)
	ids := make([]string, 0, len(sums))
	for i, campaignID := range slices.Sorted(maps.Keys(sums)) {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id.String())
		sum := sums[campaignID]
		s.open(i)
		s.string(id.String())
		s.string(campaignID)
		s.int(sum.units)
		s.int(sum.claims)
		s.int(sum.firstSeq)
		s.int(sum.lastSeq)
		s.int(took.Milliseconds())
		s.time(now)
		s.close()
	}
	_, err := tx.ExecContext(ctx, s.text(), s.args...)
	return ids, err
}

// moveBooks is the one UPDATE of a flush, for all its campaigns. It fails with errStranger when MySQL lacks one of them.
func moveBooks(ctx context.Context, tx *sql.Tx, dialect string, flushIDs []string, now time.Time) error {
	head := moveBooksMySQL
	if dialect == migrations.SQLite {
		head = moveBooksSQLite
	}
	query := head + "'" + strings.Join(flushIDs, "','") + "')" //nolint:gosec // the ids are UUIDs made here
	result, err := tx.ExecContext(ctx, query, now.UTC().Format(sqlTimeLayout))
	if err != nil {
		return err
	}
	// synced_seq grows in each row that matches, so changed rows and matched rows are the same number.
	moved, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if moved != int64(len(flushIDs)) {
		return errStranger
	}
	return nil
}

// statement builds a multi-row INSERT. Numbers, times and text of plain characters stand in the statement itself, which
// costs a third of what a placeholder costs; any other text is an argument.
type statement struct {
	sql  []byte
	args []any
}

func newStatement(head string, size int) *statement {
	s := &statement{sql: make([]byte, 0, len(head)+size)}
	s.sql = append(s.sql, head...)
	return s
}

func (s *statement) text() string { return string(s.sql) }

func (s *statement) open(i int) {
	if i > 0 {
		s.sql = append(s.sql, ',')
	}
	s.sql = append(s.sql, '(')
}

// close ends the row; each value has left a comma behind it.
func (s *statement) close() { s.sql[len(s.sql)-1] = ')' }

func (s *statement) int(n int64) {
	s.sql = append(strconv.AppendInt(s.sql, n, 10), ',')
}

func (s *statement) time(t time.Time) {
	s.sql = append(s.sql, '\'')
	s.sql = append(t.UTC().AppendFormat(s.sql, sqlTimeLayout), '\'', ',')
}

func (s *statement) string(v string) {
	if !isPlain(v) {
		s.sql = append(s.sql, '?', ',')
		s.args = append(s.args, v)
		return
	}
	s.quoted(v)
}

// quoted takes plain text only.
func (s *statement) quoted(v string) {
	s.sql = append(append(append(s.sql, '\''), v...), '\'', ',')
}

func (s *statement) stringOrNull(v string) {
	if v == "" {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.string(v)
}

func (s *statement) intOrNull(n *int64) {
	if n == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.int(*n)
}

// isPlain tells whether text is of characters that mean nothing to any SQL parser, whatever its modes and character set.
func isPlain(v string) bool {
	for i := range len(v) {
		c := v[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return false
	}
	return true
}
