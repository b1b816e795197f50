package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// A round looks at so many campaigns: what is idle costs Redis a call each time.
const evictorLooks = 500

// MinIdle evicts every campaign that may be evicted.
const MinIdle = time.Millisecond

// Evictor evicts campaigns from Redis that no one claims from and of which MySQL has every claim, unless the campaign, or packets
// of it, have yet to begin. An eviction takes two steps:
//
//  1. Redis deletes all keys of the campaign, if load, claims and idle time are still as asked for, and leaves a tombstone.
//  2. MySQL records that the campaign was evicted in full.
//
// After an evictor that died in between, the next process that reads the tombstone takes step 2. Any number may run at once. The tombstone
// stays until the campaign is loaded again: a load of less than was evicted is refused.
type Evictor struct {
	hydrator  *Hydrator // examines what turns out to be gone
	idle      time.Duration
	evictions prometheus.Counter
	steps     steps.Steps
	looks     int
	last      string // that Evict looked at, if more are behind it
}

// NewEvictor makes an evictor of campaigns without a claim or a load for idle, by Redis' clock; with a nil Registerer it has no
// metrics.
func NewEvictor(hydrator *Hydrator, idle time.Duration, reg prometheus.Registerer) *Evictor {
	return &Evictor{hydrator: hydrator, idle: idle, evictions: newEvictions(reg), looks: evictorLooks}
}

// Evict looks at some of the campaigns that are in Redis by their books, in turn, and returns how many it evicted. One that turns out
// to be gone is examined, see Hydrator.Examine. A failure is returned after the others had their turn. It is for one goroutine.
func (e *Evictor) Evict(ctx context.Context) (evicted int, err error) {
	page, err := campaigns.Lots(ctx, e.hydrator.db, e.looks, "id, epoch, synced_seq, tseq", "residency = ? AND applied_version = version",
		models.ResidencyResident)(e.last)
	if err != nil {
		return 0, fmt.Errorf("residency: evict: %w", err)
	}
	e.last = ""
	if len(page) == e.looks {
		e.last = page[len(page)-1].ID
	}
	var failed []error
	for i := range page {
		done, err := e.evict(ctx, &page[i])
		if done {
			evicted++
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return evicted, errors.Join(failed...)
}

// EvictOne evicts a campaign if it may be. evicted is true if it is not in Redis then, by its books.
func (e *Evictor) EvictOne(ctx context.Context, campaignID string) (evicted bool, err error) {
	c, err := campaigns.Read(e.hydrator.db.WithContext(ctx), campaignID)
	if err != nil || c.Residency == models.ResidencyEvicted || !campaigns.IsResident(&c) {
		return err == nil && c.Residency != models.ResidencyLost, err
	}
	return e.evict(ctx, &c)
}

func (e *Evictor) evict(ctx context.Context, c *models.Campaign) (evicted bool, err error) {
	seen := lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq}
	gone, err := e.hydrator.scripts.Evict(ctx, c, e.idle)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return false, e.hydrator.Examine(ctx, c.ID)
	case err != nil:
		return false, fmt.Errorf("residency: evict %s: %w", c.ID, err)
	case !gone:
		return false, nil
	}
	e.steps.At("gone")
	if err := recordEviction(ctx, e.hydrator.db, c.ID, seen); err != nil {
		return false, err
	}
	e.steps.At("recorded")
	e.evictions.Inc()
	e.hydrator.log.LogAttrs(ctx, slog.LevelInfo, "campaign evicted from redis: it was idle and mysql has all its claims",
		slog.String("campaign_id", c.ID), slog.Int64("epoch", c.Epoch), slog.Int64("claims", c.SyncedSeq))
	return true, nil
}

// recordEviction records in MySQL that a campaign was evicted in full. A newer load stays. remaining becomes exact: a change that
// waits for Redis is in the books already.
func recordEviction(ctx context.Context, db *gorm.DB, id string, seen lua.Position) error {
	err := sqlstore.Retry(ctx, func() error {
		return sqlstore.On(db.WithContext(ctx)).Run("UPDATE lots SET residency = ?, residency_reason = '', residency_at = ?, redis_total = 0"+
			" WHERE id = ? AND epoch = ? AND synced_seq = ? AND residency = ?",
			models.ResidencyEvicted, sqlstore.Now(), id, seen.Epoch, seen.Seq, models.ResidencyResident)
	})
	if err != nil {
		return fmt.Errorf("residency: evict %s: %w", id, err)
	}
	return nil
}
