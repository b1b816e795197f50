package apitest

import (
	"context"
	"errors"
	"sync"

	"dibs/lua"
)

// Definitions stands in for MySQL: it loads a campaign into Redis once only.
type Definitions struct {
	*Fake
	Scripts *lua.Scripts
	one     sync.Mutex
	Loaded  map[string]bool
}

// ErrLost is Definitions' error for a campaign that was loaded before.
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
		return st.Meta, nil // another process loaded it
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
