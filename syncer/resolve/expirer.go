package resolve

import (
	"context"
	"fmt"
	"maps"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	expireBatch     = 200 // claims of one transaction: a few hundredths of a second of work
	expireRest      = 9   // after a batch the expirer waits so many times as long as it took: claims come first
	expireRestMax   = 5 * time.Second
	expireFullEvery = time.Minute // how often all claims of a campaign are looked at, due or not by their place
	expireChunk     = 5000        // places of the order that are looked at together
	chunksAhead     = 1           // chunks that are looked at behind the first with a claim that is not due
)

// Expirer releases claims that nobody redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once do no harm.
//
// A claim's place says whether it can be due: in the order of a campaign the times of claims grow, and its hold never changes. So
// a look begins behind the last place that is final, and ends soon behind the first claim that is not due. When Redis' clock
// stepped back, claims stand behind later ones: the look finds them as it gets there, or the full look does that follows now and
// then.
type Expirer struct {
	relay   *Relay
	expired prometheus.Counter
	cursors map[string]*expiryCursor // by campaign

	batchSize int           // is expireBatch, but in tests
	rest      int           // is expireRest, but in tests
	chunkSize int64         // is expireChunk, but in tests
	fullEvery time.Duration // is expireFullEvery, but in tests
	steps     steps.Steps
}

// expiryCursor is how far a campaign is final: each place up to there has its row, and none can expire any more.
type expiryCursor struct {
	final  int64
	fullAt time.Time // by Redis' clock
}

// NewExpirer makes an expirer whose decisions relay applies to Redis; reg may be nil.
func NewExpirer(relay *Relay, reg prometheus.Registerer) *Expirer {
	return &Expirer{
		relay: relay, cursors: make(map[string]*expiryCursor),
		batchSize: expireBatch, rest: expireRest, chunkSize: expireChunk, fullEvery: expireFullEvery,
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that nobody redeemed in time and that this process released.",
		}),
	}
}

// heldCampaign is a campaign whose claims expire.
type heldCampaign struct {
	ID        string
	HoldForMs int64
}

// Expire goes once over all campaigns with a hold and returns how many claims it released. A failure is returned after the
// others had their turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	now, err := e.relay.scripts.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("resolve: expire: %w", err)
	}
	seen := make(map[string]bool, len(e.cursors))
	err = sqlstore.EachRow(ctx, func(c *heldCampaign) string { return c.ID }, func(after string) (page []heldCampaign, err error) {
		err = e.relay.db.WithContext(ctx).Raw("SELECT id, hold_for_ms FROM campaigns WHERE id > ? AND hold_for_ms > 0 AND synced_seq > 0"+
			" ORDER BY id LIMIT ?", after, sqlstore.PageSize).Scan(&page).Error
		return page, err
	}, func(c *heldCampaign) error {
		if e.cursors[c.ID] == nil {
			e.cursors[c.ID] = &expiryCursor{}
		}
		seen[c.ID] = true
		n, err := e.campaign(ctx, c, e.cursors[c.ID], now)
		expired += n
		return err
	})
	if ctx.Err() == nil {
		maps.DeleteFunc(e.cursors, func(id string, _ *expiryCursor) bool { return !seen[id] })
	}
	if err != nil {
		return expired, fmt.Errorf("resolve: expire: %w", err)
	}
	return expired, nil
}

// campaign looks at one campaign, chunk by chunk.
func (e *Expirer) campaign(ctx context.Context, c *heldCampaign, cursor *expiryCursor, now time.Time) (expired int, err error) {
	full := now.Sub(cursor.fullAt) >= e.fullEvery || now.Before(cursor.fullAt)
	due := now.Add(-time.Duration(c.HoldForMs) * time.Millisecond)
	last, err := e.lastPlace(ctx, c.ID)
	if err != nil {
		return 0, err
	}
	ahead := 0
	for from := cursor.final; from < last; from += e.chunkSize {
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
		case from == cursor.final && rows == e.chunkSize && open == 0:
			cursor.final += e.chunkSize
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
	err = e.relay.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(seq), 0) FROM claims WHERE campaign_id = ? AND shard = 0", id).Scan(&last).Error
	if err != nil {
		return 0, fmt.Errorf("resolve: expire %s: %w", id, err)
	}
	return last, nil
}

// left counts what a chunk holds: rows, and claims among them that may expire yet.
func (e *Expirer) left(ctx context.Context, id string, from int64) (rows, open int64, err error) {
	err = e.relay.db.WithContext(ctx).Raw("SELECT COUNT(*), COALESCE(SUM(CASE WHEN status = ? THEN 1 ELSE 0 END), 0) FROM claims"+
		" WHERE campaign_id = ? AND shard = 0 AND seq > ? AND seq <= ?", models.ClaimClaimed, id, from, from+e.chunkSize).Row().Scan(&rows, &open)
	if err != nil {
		return 0, 0, fmt.Errorf("resolve: expire %s: %w", id, err)
	}
	return rows, open, nil
}

// chunk releases the claims of a chunk that were made at due or before, batch by batch.
func (e *Expirer) chunk(ctx context.Context, id string, from int64, due time.Time) (expired int, err error) {
	for {
		begun := time.Now()
		n, found, err := e.batch(ctx, id, from, due)
		expired += n
		if err != nil || found < e.batchSize {
			return expired, err
		}
		if e.rest > 0 {
			if err := sleep.For(ctx, min(expireRestMax, time.Duration(e.rest)*time.Since(begun))); err != nil {
				return expired, fmt.Errorf("resolve: expire %s: %w", id, err)
			}
		}
	}
}
