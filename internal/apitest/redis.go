package apitest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/models"
)

// Definitions stands in for MySQL's side: it brings a campaign to Redis the first time, and never again.
type Definitions struct {
	*Fake
	Scripts *lua.Scripts
	one     sync.Mutex
	Loaded  map[string]bool
}

// ErrLost is what Definitions answers for a campaign that was in Redis before.
var ErrLost = errors.New("lost: it was in redis before")

// Load loads a campaign the first time.
func (d *Definitions) Load(ctx context.Context, id string) (lua.Meta, error) {
	c, err := d.Get(ctx, id)
	if err != nil {
		return lua.Meta{}, err
	}
	d.one.Lock()
	defer d.one.Unlock()
	if st, err := d.Scripts.State(ctx, id); err == nil {
		return st.Meta, nil // another process was faster
	}
	if d.Loaded[id] {
		return lua.Meta{}, ErrLost
	}
	d.Loaded[id] = true
	c.Epoch = 1
	if _, err := d.Scripts.Load(ctx, &c); err != nil {
		return lua.Meta{}, err
	}
	return d.Scripts.MetaOf(&c)
}

// Recover is Load.
func (d *Definitions) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return d.Load(ctx, id)
}

// Change brings the change to Redis.
func (d *Definitions) Change(ctx context.Context, id string, change models.Change) (models.Campaign, error) {
	c, err := d.Fake.Change(ctx, id, change)
	if err == nil {
		c.Epoch = 1
		_, err = d.Scripts.Adjust(ctx, &c, nil)
	}
	return c, err
}

// RealServer is an API over a real Redis. Servers that share Definitions share the campaigns.
func RealServer(t testing.TB, d *Definitions, url string, cfg api.Config) http.Handler {
	t.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	if d.Scripts == nil {
		d.Scripts = scripts
	}
	ready := func(ctx context.Context) error { return rdb.Ping(ctx).Err() }
	s, err := api.New(cfg, api.Deps{
		Claimer: scripts, States: scripts, Shared: softstate.New(rdb, scripts), Loader: d, Campaigns: d, Mover: d, Claims: d, Resolver: d,
		Audit: d.Audit, Groups: &Groups{}, Ledger: Ledger{}, Applied: d, Ready: ready,
	})
	require.NoError(t, err)
	return AtHome(s.Handler())
}
