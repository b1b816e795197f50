package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"dibs/lua"
)

// operateEvery is the pause between two uses of a feature.
const operateEvery = 300 * time.Millisecond

// operate repeats the round's operator actions until ctx ends.
func (rd *round) operate(ctx context.Context, wg *sync.WaitGroup) {
	every := func(do func()) {
		wg.Go(func() {
			for ; ctx.Err() == nil; wait(ctx, operateEvery) {
				rd.operating.RLock()
				do()
				rd.operating.RUnlock()
			}
		})
	}
	var upgraded, evicting []*campaign
	for _, c := range rd.campaigns {
		if c.has(withRepair) {
			every(func() {
				done := c.acting(withRepair)
				// it may fail during a fault
				_, _ = rd.w.dibs("reconcile", "--repair", "--campaign", c.id)
				done()
			})
		}
		if c.has(withArchive) {
			every(func() {
				if c.closing.Load() && rd.w.archive(c) == nil {
					c.acting(withArchive) // from now on
				}
			})
		}
		if c.has(withUpgrade) {
			upgraded = append(upgraded, c)
		}
		if c.has(withEviction) {
			evicting = append(evicting, c)
		}
	}
	if len(upgraded) > 0 {
		every(func() { rd.upgrade(ctx, upgraded) })
	}
	if len(evicting) > 0 {
		every(func() { rd.seeEvictions(ctx, evicting) })
	}
}

// upgrade does what docs/guides/upgrade.md says, with the same
// program: the schema, then one process after the other. It does
// not wait for a process that a fault keeps down.
func (rd *round) upgrade(ctx context.Context, all []*campaign) {
	for _, c := range all {
		defer c.acting(withUpgrade)()
	}
	_, _ = rd.w.dibs("migrate")
	for _, p := range rd.w.parts {
		if ctx.Err() != nil {
			return
		}
		p.signal(syscall.SIGTERM)
		wait(ctx, startAgain)
		_ = p.awaitUp(ctx, stopWithin)
	}
}

// seeEvictions records which campaigns have left Redis.
func (rd *round) seeEvictions(ctx context.Context, all []*campaign) {
	for _, l := range rd.w.inForce {
		n, err := rd.w.rdb.Exists(ctx, lua.KeysOf(l.id, l.partition).State).Result()
		for _, c := range all {
			if err == nil && n == 0 && c.id == l.campaign {
				c.acting(withEviction)()
			}
		}
	}
}

// archive moves a closed campaign's claims, except those with an open hold.
func (w *world) archive(c *campaign) error {
	before := time.Now().Add(2 * clockOff).UTC().Format(time.RFC3339)
	out, err := w.dibs("archive", "--campaign", c.id, "--before", before)
	if err != nil {
		return fmt.Errorf("%w: dibs archive: %w: %s", errBroken, err, out)
	}
	return nil
}

// closeCampaign closes a campaign, retrying until done.
func (o *operator) closeCampaign(ctx context.Context, c *campaign) error {
	return o.insist(context.WithoutCancel(ctx), http.MethodPost, "/v1/campaigns/"+c.id+"/close", map[string]any{})
}

// archiveAll closes a campaign and moves its claims, until none
// is left. If Redis' clock was wrong, some may stay.
func (o *operator) archiveAll(ctx context.Context, c *campaign, lied bool) error {
	if err := o.closeCampaign(ctx, c); err != nil { // again: MySQL may have lost it
		return err
	}
	for deadline := time.Now().Add(healWithin); ; wait(ctx, 100*time.Millisecond) {
		var left int64
		pending, err := o.w.undecided(c)
		if err == nil && pending == 0 {
			err = o.w.archive(c)
			if lied { // a campaign is not idle before its last claim, by a clock that was ahead
				return nil
			}
		}
		if err == nil {
			err = wrap(o.w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM claims WHERE campaign_id = ?", c.id).Scan(&left))
		}
		switch {
		case err == nil && pending == 0 && left == 0:
			return nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return errors.Join(fmt.Errorf("%w: %s is not archived within %s: %d claims are left", errBroken, c.id, healWithin, left), err)
		}
	}
}
