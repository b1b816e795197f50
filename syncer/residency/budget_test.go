package residency_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"

	"github.com/redis/go-redis/v9"
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

// countedTrips counts round trips to Redis, but for those that open a connection.
type countedTrips struct{ n *atomic.Int64 }

func (c countedTrips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c countedTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c countedTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "client" {
			c.n.Add(1)
		}
		return next(ctx, cmds)
	}
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
	rdb := redis.NewClient(h.Redis.Options())
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	rdb.AddHook(countedTrips{&trips})
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	require.NoError(t, scripts.Preload(t.Context()))
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
