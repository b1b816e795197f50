package reconcile

import (
	"context"

	"dibs/lua"
	"dibs/syncer/campaigns"
)

// releases distinguishes releases that are on their way to Redis from those that will never get there. Until both servers know the same
// ones there is no common watermark.
func (a *attempt) releases(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &a.snap.campaign
	if state.Released < c.ReleasedClaims-a.snap.untold { // MySQL was read first
		a.found.differInRedisf("redis knows %d releases, and was told of %d", state.Released, c.ReleasedClaims-a.snap.untold)
		return true, nil
	}
	if state.Released < c.ReleasedClaims {
		return false, nil
	}
	now, err := campaigns.Read(a.r.db.WithContext(ctx), c.ID)
	if err != nil || now.Epoch != state.Epoch || now.ReleasedClaims >= state.Released {
		return false, err
	}
	a.found.differInRedisf("redis knows %d releases, mysql counts %d", state.Released, now.ReleasedClaims)
	return true, nil
}
