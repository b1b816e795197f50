package bench_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
)

const (
	rowsPerTransaction = 1000

	insertHead = "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch," +
		" packet_id, amount, claimed_at, synced_at) VALUES "
	updateBooks = "UPDATE lots SET claimed = claimed + 1, synced_seq = synced_seq + 1," +
		" updated_at = UTC_TIMESTAMP(3) WHERE id = ?"
)

func rowOf(m lua.Meta, seq int64) string {
	const at = "2026-01-02 03:04:05.678"
	return fmt.Sprintf("('%s','%s',0,%d,'user-1%d',1,'claimed','%s',1,NULL,NULL,'%s','%s')",
		uuid.Must(uuid.NewV7()), m.ID, seq, 100_000+seq, "AAECAwQFBgcICQoLDA0ODw", at, at)
}

// insertRows inserts rows into claims, 1,000 a transaction, and
// returns rows per second.
func insertRows(b *testing.B, r *broker, st *store, connections int) float64 {
	b.Helper()
	m := metaFor(r)
	st.empty(b, m)
	rows := amount(bookClaims)
	statements := make([]string, 0, rows/rowsPerTransaction)
	for seq := int64(1); seq < int64(rows); seq += rowsPerTransaction {
		values := make([]string, rowsPerTransaction)
		for i := range values {
			values[i] = rowOf(m, seq+int64(i))
		}
		statements = append(statements, insertHead+strings.Join(values, ","))
	}
	var next atomic.Int64
	start := time.Now()
	group, ctx := errgroup.WithContext(b.Context())
	for range connections {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(len(statements)); i = next.Add(1) - 1 {
				if err := st.transaction(ctx, statements[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	return float64(len(statements)*rowsPerTransaction) / time.Since(start).Seconds()
}

// transaction runs one statement between BEGIN and COMMIT, and
// another one with an argument if given.
func (s *store) transaction(ctx context.Context, statement string, id ...any) error {
	tx, err := s.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return err
	}
	if len(id) > 0 {
		if _, err := tx.ExecContext(ctx, updateBooks, id...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// insertEach runs a transaction per claim for a time, and
// returns claims per second.
func insertEach(b *testing.B, r *broker, st *store, connections int) float64 {
	b.Helper()
	m := metaFor(r)
	st.empty(b, m)
	var seq atomic.Int64
	start := time.Now()
	until := start.Add(span(2 * time.Second))
	group, ctx := errgroup.WithContext(b.Context())
	for range connections {
		group.Go(func() error {
			for time.Now().Before(until) {
				if err := st.transaction(ctx, insertHead+rowOf(m, seq.Add(1)), m.ID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	took := time.Since(start)
	st.requireBooked(b, m, seq.Load())
	return float64(seq.Load()) / took.Seconds()
}
