package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"gorm.io/gorm"
)

const (
	expireBatch = 500  // claims of a transaction
	expirePage  = 100  // lots of a pass
	expireRate  = 2000 // claims a second, so that new claims come first
)

// Expirer releases claims that were not redeemed in time, by Redis'
// clock. Expire serves one goroutine; several processes do no harm.
//
// In a lot, claims are made in order of seq and have the same hold. So
// a cursor, a row of hold_cursors, scans them in order and stops at the
// first hold that lasts. Its indexed due_ms is when that hold ends; a
// flush sets it if there is none. A claim written late gets a row of
// hold_dues: the cursor may be at its seq or behind it.
type Expirer struct {
	relay   *Relay
	intact  func(ctx context.Context, partitions []int) ([]int, error)
	expired prometheus.Counter
	late    prometheus.Gauge
	overdue time.Duration // of the most overdue hold in this pass
	away    []int         // partitions whose holds may not end now
	awayErr error         // why

	pace      *rate.Limiter // expireRate, except in tests
	batchSize int           // expireBatch, except in tests
	lots      int           // expirePage, except in tests
	steps     steps.Steps
}

// NewExpirer returns an expirer whose decisions relay delivers. reg may be
// nil. intact returns the partitions whose holds may end, see lots.Loader.OK.
// A MySQL that is behind may lack redeems. nil means all partitions.
func NewExpirer(
	relay *Relay, intact func(ctx context.Context, partitions []int) ([]int, error), reg prometheus.Registerer,
) *Expirer {
	return &Expirer{
		relay: relay, intact: intact, batchSize: expireBatch, lots: expirePage,
		pace: rate.NewLimiter(expireRate, expireBatch),
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that no one redeemed in time and that this process released.",
		}),
		late: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "dibs_holds_late_seconds", Help: "For how long the hold that is open longest has been over. 0 unless this process leads.",
		}),
	}
}

// Expire releases due claims and returns how many.
// Passes give each lot an equal share of a transaction.
// The failure of a lot or partition does not stop the others.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	e.away = nil
	e.awayErr = nil
	for more := true; more && err == nil; {
		var n int
		n, more, err = e.pass(ctx)
		expired += n
	}
	err = errors.Join(err, e.awayErr)
	if err != nil {
		return expired, fmt.Errorf("resolve: expire: %w", err)
	}
	return expired, nil
}

// pass handles each due lot, the most overdue first, and then single
// claims. more reports whether another pass has something to do.
func (e *Expirer) pass(ctx context.Context) (expired int, more bool, err error) {
	now, err := e.relay.scripts.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	lots, err := e.due(ctx, now)
	if err != nil {
		return 0, false, err
	}
	e.overdue = 0
	away := len(e.away)
	n, more, err := e.scan(ctx, lots, now)
	singles, moreSingles, singleErr := e.singles(ctx, now)
	e.late.Set(e.overdue.Seconds())
	more = more || moreSingles || len(e.away) > away // the next pass reads those of other partitions
	return n + singles, more, errors.Join(err, singleErr)
}

// ofIntact returns those whose partition MySQL has applied to the tip. The
// other partitions are away.
func ofIntact[T any](ctx context.Context, e *Expirer, all []T, lotOf func(*T) string) []T {
	if e.intact == nil || len(all) == 0 {
		return all
	}
	partitionOf := func(one *T) int { return lua.PartitionOf(lotOf(one), e.relay.scripts.Partitions()) }
	var partitions []int
	for i := range all {
		partitions = append(partitions, partitionOf(&all[i]))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	intact, err := e.intact(ctx, partitions)
	e.awayErr = errors.Join(e.awayErr, err)
	for _, p := range partitions {
		if !slices.Contains(intact, p) {
			e.away = append(e.away, p)
		}
	}
	return slices.DeleteFunc(all, func(one T) bool { return slices.Contains(e.away, partitionOf(&one)) })
}

// ResetMetrics sets the gauge to 0 when another process leads.
func (e *Expirer) ResetMetrics() { e.late.Set(0) }

func (e *Expirer) scan(ctx context.Context, lots []heldLot, now time.Time) (expired int, more bool, err error) {
	lots = ofIntact(ctx, e, lots, (*heldLot).id)
	if len(lots) == 0 {
		return 0, false, nil
	}
	e.overdue = max(e.overdue, now.Sub(time.UnixMilli(*lots[0].DueMs)))
	share := max(1, e.batchSize/len(lots))
	var all []heldClaim
	var failed []error
	failed = append(failed, apart(lots, (*heldLot).id, func(part []heldLot) error {
		ended, err := e.goOver(ctx, part, share, now)
		all = append(all, ended...)
		more = more || err == nil
		return err
	}))
	failed = append(failed, e.deliver(ctx, all))
	return len(all), more, errors.Join(failed...)
}

func (e *Expirer) goOver(ctx context.Context, lots []heldLot, share int, now time.Time) (ended []heldClaim, err error) {
	for {
		err = e.inTx(ctx, func(tx *gorm.DB) (err error) {
			if err := lock(tx, lots); err != nil {
				return err
			}
			ended, err = walk(tx, lots, share, now)
			if err != nil {
				return err
			}
			e.steps.At("found")
			if err := e.end(ctx, tx, ended); err != nil {
				return err
			}
			return move(tx, lots)
		})
		if !errors.Is(err, errRaced) { // after a race fewer claims are undecided
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("resolve: expire: %w", err)
	}
	e.steps.At("committed")
	return ended, nil
}

func (e *Expirer) end(ctx context.Context, tx *gorm.DB, claims []heldClaim) error {
	if len(claims) == 0 {
		return nil
	}
	d := &decision{event: event.ClaimReleased, isExpiry: true}
	if err := d.mark(claims, sqlstore.Now()); err != nil {
		return err
	}
	return d.write(ctx, tx, claims, &e.steps)
}

func (e *Expirer) singles(ctx context.Context, now time.Time) (expired int, more bool, err error) {
	dues, err := e.dues(ctx, now)
	if err != nil || len(dues) == 0 {
		return 0, false, err
	}
	ids := sqlstore.Keys(dues, func(d *stored.HoldDue) string { return d.ClaimID })
	claims, err := readClaims(ctx, e.relay.db, ids)
	if err != nil {
		return 0, false, err
	}
	away := len(e.away)
	claims = ofIntact(ctx, e, claims, func(c *heldClaim) string { return c.LotID() })
	if len(e.away) > away { // the next pass leaves out their dues
		return 0, true, nil
	}
	claims = slices.DeleteFunc(claims, func(c heldClaim) bool {
		return c.Status != models.ClaimClaimed || c.Kind == models.KindPacket
	})
	err = e.inTx(ctx, func(tx *gorm.DB) error {
		if err := e.end(ctx, tx, claims); err != nil {
			return err
		}
		query := "DELETE FROM hold_dues WHERE due_ms <= ? AND claim_id IN " + sqlstore.Marks(len(ids))
		n, err := sqlstore.Exec(ctx, tx, query, append([]any{now.UnixMilli()}, sqlstore.Args(ids)...)...)
		if err == nil && n < int64(len(ids)) { // a hold was extended, or started again
			err = errRaced
		}
		return err
	})
	if errors.Is(err, errRaced) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("resolve: expire: %w", err)
	}
	e.overdue = max(e.overdue, now.Sub(time.UnixMilli(dues[0].DueMs)))
	return len(claims), true, e.deliver(ctx, claims)
}

// deliver delivers expiries to Redis, at most expireRate a second.
func (e *Expirer) deliver(ctx context.Context, claims []heldClaim) error {
	if len(claims) == 0 {
		return nil
	}
	e.expired.Add(float64(len(claims)))
	err := e.relay.deliverDecided(ctx, claims) // the relay retries
	if paceErr := e.pace.WaitN(ctx, len(claims)); paceErr != nil {
		// the next round continues
		err = errors.Join(err, fmt.Errorf("%w: %w", context.DeadlineExceeded, paceErr))
	}
	return err
}
