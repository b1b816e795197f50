package api_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/lua"
	"dibs/models"
)

// definitions stands in for MySQL's side: it brings a campaign to Redis the first time, and never again.
type definitions struct {
	*fakeRoom
	scripts *lua.Scripts
	one     sync.Mutex
	loaded  map[string]bool
}

var errLost = errors.New("lost: it was in redis before")

func (d *definitions) Hydrate(ctx context.Context, id string) (lua.Meta, error) {
	c, err := d.Get(ctx, id)
	if err != nil {
		return lua.Meta{}, err
	}
	d.one.Lock()
	defer d.one.Unlock()
	if st, err := d.scripts.State(ctx, id); err == nil {
		return st.Meta, nil // another process was faster
	}
	if d.loaded[id] {
		return lua.Meta{}, errLost
	}
	d.loaded[id] = true
	c.Epoch = 1
	if _, err := d.scripts.Load(ctx, &c); err != nil {
		return lua.Meta{}, err
	}
	return d.scripts.MetaOf(&c)
}

func (d *definitions) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return d.Hydrate(ctx, id)
}

func (d *definitions) Change(ctx context.Context, id string, change models.Change) (models.Campaign, error) {
	c, err := d.fakeRoom.Change(ctx, id, change)
	if err == nil {
		c.Epoch = 1
		_, err = d.scripts.Adjust(ctx, &c)
	}
	return c, err
}

// realServer is an API over a real Redis. Servers that share a definitions share the campaigns.
func realServer(t testing.TB, d *definitions, url string, cfg api.Config) http.Handler {
	t.Helper()
	rdb, err := lua.Connect(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	if d.scripts == nil {
		d.scripts = scripts
	}
	ready := func(ctx context.Context) error { return rdb.Ping(ctx).Err() }
	s, err := api.New(cfg, api.Deps{Claimer: scripts, States: scripts, Hydrator: d, Campaigns: d, Claims: d, Resolver: d, Streams: scripts, Ready: ready})
	require.NoError(t, err)
	return athome(s.Handler())
}
