package resolve

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"gorm.io/gorm"
)

// Defaults of ExpirerConfig.
const (
	DefaultExpireBatch = 200 // a few hundredths of a second of work
	DefaultExpireRest  = 9   // for each moment of work nine of rest: claims come first
	DefaultFullEvery   = time.Minute

	expireChunk   = 5000            // places of the order that are looked at together
	expireRestMax = 5 * time.Second // after one batch
	chunksAhead   = 1               // chunks that are looked at behind the first with a claim that is not due
)

// ExpirerConfig is how an Expirer works. DB, Scripts, Relay and Logger are required.
type ExpirerConfig struct {
	DB      *gorm.DB
	Scripts campaigns.Scripts
	Relay   *Relay

	Batch     int           // claims of one transaction
	Rest      int           // how many times as long as a batch took the expirer rests after it; below 0 is not at all
	FullEvery time.Duration // how often all claims of a campaign are looked at, due or not by their place

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c ExpirerConfig) WithDefaults() ExpirerConfig {
	sqlstore.OrDefault(&c.Batch, DefaultExpireBatch)
	sqlstore.OrDefault(&c.Rest, DefaultExpireRest)
	sqlstore.OrDefault(&c.FullEvery, DefaultFullEvery)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c ExpirerConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Relay == nil:
		return sqlstore.Required("Relay")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.Batch < 1 || c.Batch > campaigns.OutboxAtOnce:
		return fmt.Errorf("%w: Batch must be 1 to %d", sqlstore.ErrConfig, campaigns.OutboxAtOnce)
	case c.FullEvery < 0:
		return fmt.Errorf("%w: FullEvery must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Expirer releases claims that nobody redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once are no harm.
//
// Which claims are due is told by their place: in the order of a campaign the times of claims grow, and its hold never changes.
// So the look begins behind what is settled for good and ends soon behind the first claim that is not due. A claim
// that Redis' clock, stepping back, left behind later ones, is found as the look reaches it, or by the full look that is
// taken now and then.
type Expirer struct {
	cfg     ExpirerConfig
	expired prometheus.Counter
	cursors map[string]*expiryCursor // by campaign

	step func(name string) // tests only: called between the steps
}

// expiryCursor is how far a campaign is settled: each place up to there has its row, and none can expire any more.
type expiryCursor struct {
	settled int64
	fullAt  time.Time // by Redis' clock
}

// NewExpirer checks cfg and makes an expirer.
func NewExpirer(cfg ExpirerConfig) (*Expirer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Expirer{
		cfg: cfg, cursors: make(map[string]*expiryCursor), step: func(string) {},
		expired: promauto.With(cfg.Registerer).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that nobody redeemed in time and that this process released.",
		}),
	}, nil
}

// heldCampaign is a campaign whose claims expire.
type heldCampaign struct {
	ID        string
	HoldForMs int64
}

// Expire goes once over all campaigns with a hold and returns how many claims it released. A failure is returned after the
// others had their turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	now, err := e.cfg.Scripts.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("syncer: expire: %w", err)
	}
	var failed []error
	seen := make(map[string]bool, len(e.cursors))
	for after := ""; ; {
		var page []heldCampaign
		err := e.cfg.DB.WithContext(ctx).Raw("SELECT id, hold_for_ms FROM campaigns WHERE id > ? AND hold_for_ms > 0 AND synced_seq > 0"+
			" ORDER BY id LIMIT ?", after, campaigns.PageSize).Scan(&page).Error
		if err != nil {
			return expired, errors.Join(append(failed, fmt.Errorf("syncer: expire: %w", err))...)
		}
		for _, c := range page {
			if e.cursors[c.ID] == nil {
				e.cursors[c.ID] = &expiryCursor{}
			}
			seen[c.ID] = true
			n, err := e.campaign(ctx, &c, e.cursors[c.ID], now)
			expired += n
			if ctx.Err() != nil {
				return expired, fmt.Errorf("syncer: expire: %w", context.Cause(ctx))
			}
			if err != nil && len(failed) < campaigns.PageSize {
				failed = append(failed, err)
			}
		}
		if len(page) < campaigns.PageSize {
			break
		}
		after = page[len(page)-1].ID
	}
	maps.DeleteFunc(e.cursors, func(id string, _ *expiryCursor) bool { return !seen[id] })
	return expired, errors.Join(failed...)
}

// campaign looks at one campaign, chunk by chunk.
func (e *Expirer) campaign(ctx context.Context, c *heldCampaign, cursor *expiryCursor, now time.Time) (expired int, err error) {
	full := now.Sub(cursor.fullAt) >= e.cfg.FullEvery || now.Before(cursor.fullAt)
	due := now.Add(-time.Duration(c.HoldForMs) * time.Millisecond)
	last, err := e.lastPlace(ctx, c.ID)
	if err != nil {
		return 0, err
	}
	ahead := 0
	for from := cursor.settled; from < last; from += expireChunk {
		n, err := e.chunk(ctx, c.ID, from, due)
		expired += n
		if err != nil {
			return expired, err
		}
		rows, open, err := e.left(ctx, c.ID, from)
		if err != nil {
			return expired, err
		}
		switch {
		case from == cursor.settled && rows == expireChunk && open == 0:
			cursor.settled += expireChunk
		case open > 0 && !full:
			if ahead++; ahead > chunksAhead {
				return expired, nil
			}
		}
	}
	if full {
		cursor.fullAt = now
	}
	return expired, nil
}

func (e *Expirer) lastPlace(ctx context.Context, id string) (last int64, err error) {
	err = e.cfg.DB.WithContext(ctx).Raw("SELECT COALESCE(MAX(seq), 0) FROM claims WHERE campaign_id = ? AND shard = 0", id).Scan(&last).Error
	if err != nil {
		return 0, fmt.Errorf("syncer: expire %s: %w", id, err)
	}
	return last, nil
}

// left counts what a chunk holds: rows, and claims among them that may expire yet.
func (e *Expirer) left(ctx context.Context, id string, from int64) (rows, open int64, err error) {
	err = e.cfg.DB.WithContext(ctx).Raw("SELECT COUNT(*), COALESCE(SUM(CASE WHEN status = ? THEN 1 ELSE 0 END), 0) FROM claims"+
		" WHERE campaign_id = ? AND shard = 0 AND seq > ? AND seq <= ?", models.ClaimClaimed, id, from, from+expireChunk).Row().Scan(&rows, &open)
	if err != nil {
		return 0, 0, fmt.Errorf("syncer: expire %s: %w", id, err)
	}
	return rows, open, nil
}

// chunk releases the claims of a chunk that were made at due or before, batch by batch.
func (e *Expirer) chunk(ctx context.Context, id string, from int64, due time.Time) (expired int, err error) {
	for {
		begun := time.Now()
		n, found, err := e.batch(ctx, id, from, due)
		expired += n
		if err != nil || found < e.cfg.Batch {
			return expired, err
		}
		if e.cfg.Rest > 0 {
			if err := sleep.For(ctx, min(expireRestMax, time.Duration(e.cfg.Rest)*time.Since(begun))); err != nil {
				return expired, fmt.Errorf("syncer: expire %s: %w", id, err)
			}
		}
	}
}
