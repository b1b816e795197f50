package residency_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// countedPool counts statements, but for those of transactions.
type countedPool struct {
	gorm.ConnPool

	n *atomic.Int64
}

func (p countedPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	p.n.Add(1)
	return p.ConnPool.ExecContext(ctx, query, args...)
}

func (p countedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.n.Add(1)
	return p.ConnPool.QueryContext(ctx, query, args...)
}

func (p countedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	p.n.Add(1)
	return p.ConnPool.QueryRowContext(ctx, query, args...)
}

// GetDBConn is the pool, for transactions.
func (p countedPool) GetDBConn() (*sql.DB, error) { return p.ConnPool.(*sql.DB), nil }

// counted are scripts on a stack's Redis whose round trips are counted, but for those that open a connection.
func counted(h *syncertest.Stack, trips *atomic.Int64) *lua.Scripts {
	h.T.Helper()
	return hooked(h, syncertest.Hooks{Before: func(name string) error {
		if name != "hello" && name != "pipeline client" {
			trips.Add(1)
		}
		return nil
	}})
}

// What a run costs: statements, but for the four of the transaction that reads claims, and round trips to Redis.
func TestHydrator_Budgets(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	warm := h.Create(10, nil)
	h.Take(warm, syncertest.Asks("u", 2)...)
	cold := syncertest.Stored(t, h.DB, h.Scripts, 10)
	var statements, trips atomic.Int64
	db := h.DB.Session(&gorm.Session{NewDB: true})
	config := *db.Config
	config.ConnPool = countedPool{db.ConnPool, &statements}
	db.Config = &config
	db.Statement.ConnPool = config.ConnPool
	scripts := counted(h, &trips)
	for _, c := range []struct {
		name              string
		does              func()
		id                string
		statements, trips int64
	}{
		{"a healthy check", func() {}, warm, 1, 1},
		{"a first load", func() {}, cold, 4, 3},
		{"a lost campaign of two claims", func() { h.Lose(warm, syncertest.WholeCampaign) }, warm, 4, 6},
	} {
		c.does()
		statements.Store(0)
		trips.Store(0)
		_, err := syncertest.NewHydrator(t, db, scripts).Hydrate(t.Context(), c.id)
		require.NoError(t, err, c.name)
		t.Log(c.name, statements.Load(), trips.Load())
		require.LessOrEqual(t, statements.Load(), c.statements, c.name)
		require.LessOrEqual(t, trips.Load(), c.trips, c.name)
	}
}
