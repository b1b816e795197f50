package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// IdleDefault is how long nobody must have claimed from a campaign that is evicted.
const DefaultIdle = 30 * time.Minute

// IdleLeast is the least idle time that an Evictor takes.
const IdleLeast = time.Millisecond

// EvictorConfig is how an Evictor works. DB, Scripts, Hydrator and Logger are required.
type EvictorConfig struct {
	DB       *gorm.DB
	Scripts  campaigns.Scripts
	Hydrator *Hydrator // looks after what turns out to be gone

	Idle time.Duration // by Redis' clock, since the last claim or load

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c EvictorConfig) WithDefaults() EvictorConfig {
	sqlstore.OrDefault(&c.Idle, DefaultIdle)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c EvictorConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Hydrator == nil:
		return sqlstore.Required("Hydrator")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.Idle < IdleLeast:
		return fmt.Errorf("%w: Idle must be at least %s", sqlstore.ErrConfig, IdleLeast)
	}
	return nil
}

// Evictor takes campaigns out of Redis that nobody claims from and that MySQL holds in full, unless they, or packets of theirs,
// have yet to begin. An eviction takes three steps:
//
//  1. Redis lets go of all keys of the campaign, if load, claims and idle time are still as asked for, and keeps a mark.
//  2. MySQL records that the campaign left in full.
//  3. Redis lets go of the mark.
//
// Who dies in between leaves the mark, by which the next who looks at the campaign completes the rest. Any number may run at
// once.
type Evictor struct {
	cfg       EvictorConfig
	evictions prometheus.Counter

	step func(name string) // tests only: called between the steps
}

// NewEvictor checks cfg and makes an evictor.
func NewEvictor(cfg EvictorConfig) (*Evictor, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Evictor{cfg: cfg, evictions: newEvictions(cfg.Registerer), step: func(string) {}}, nil
}

// candidate is a campaign that may be evicted.
type candidate struct {
	ID               string
	Epoch, SyncedSeq int64
}

// Evict goes once over all campaigns that are in Redis and returns how many it evicted. One that turns out to be gone is
// looked after. A failure is returned after the others had their turn.
func (e *Evictor) Evict(ctx context.Context) (evicted int, err error) {
	var failed []error
	for after := ""; ; {
		page, err := e.page(ctx, after)
		if err != nil {
			return evicted, errors.Join(append(failed, err)...)
		}
		for i := range page {
			done, err := e.evict(ctx, &page[i])
			switch {
			case done:
				evicted++
			case ctx.Err() != nil:
				return evicted, fmt.Errorf("syncer: evict: %w", context.Cause(ctx))
			case err != nil && len(failed) < campaigns.PageSize:
				failed = append(failed, err)
			}
		}
		if len(page) < campaigns.PageSize {
			return evicted, errors.Join(failed...)
		}
		after = page[len(page)-1].ID
	}
}

func (e *Evictor) page(ctx context.Context, after string) ([]candidate, error) {
	var page []candidate
	err := e.cfg.DB.WithContext(ctx).Raw("SELECT id, epoch, synced_seq FROM campaigns WHERE id > ? AND residency = ?"+
		" AND applied_version = version ORDER BY id LIMIT ?", after, models.ResidencyResident, campaigns.PageSize).Scan(&page).Error
	if err != nil {
		return nil, fmt.Errorf("syncer: evict: %w", err)
	}
	return page, nil
}

func (e *Evictor) evict(ctx context.Context, c *candidate) (evicted bool, err error) {
	seen := lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq}
	gone, err := e.cfg.Scripts.Evict(ctx, c.ID, seen, e.cfg.Idle)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return false, e.cfg.Hydrator.Examine(ctx, c.ID)
	case err != nil:
		return false, fmt.Errorf("syncer: evict %s: %w", c.ID, err)
	case !gone:
		return false, nil
	}
	e.step("gone")
	if err := recordEviction(ctx, e.cfg.DB, c.ID, seen); err != nil {
		return false, err
	}
	e.step("recorded")
	if err := e.cfg.Scripts.Forget(ctx, c.ID, seen); err != nil {
		return false, fmt.Errorf("syncer: evict %s: %w", c.ID, err)
	}
	e.evictions.Inc()
	e.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "campaign evicted from redis: it was idle and mysql holds all of it",
		slog.String("campaign_id", c.ID), slog.Int64("epoch", c.Epoch), slog.Int64("claims", c.SyncedSeq))
	return true, nil
}

// recordEviction tells MySQL that a campaign left Redis in full. A load that came meanwhile stays. Redis has no say any more,
// so remaining is exact, whatever change is waiting for Redis.
func recordEviction(ctx context.Context, db *gorm.DB, id string, seen lua.Position) error {
	err := sqlstore.Retry(ctx, func() error {
		return db.WithContext(ctx).Exec("UPDATE campaigns SET residency = ?, residency_reason = '', residency_at = ?,"+
			" remaining = CASE WHEN total > claimed THEN total - claimed ELSE 0 END"+
			" WHERE id = ? AND epoch = ? AND synced_seq = ? AND residency = ?",
			models.ResidencyEvicted, sqlstore.Now(), id, seen.Epoch, seen.Seq, models.ResidencyResident).Error
	})
	if err != nil {
		return fmt.Errorf("syncer: evict %s: %w", id, err)
	}
	return nil
}
