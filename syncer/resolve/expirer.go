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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

const (
	expireBatch = 500  // claims of a transaction
	expirePage  = 100  // lots that are gone over together
	expireRate  = 2000 // claims a second: claims that are made come first
)

// Expirer releases claims that were not redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once do no harm.
//
// In a lot the time of claims does not fall while their seq rises, and all have the same hold. So a cursor, a row of hold_cursors, goes
// over the claims of a lot in order and stops at the first whose hold lasts. Its due_ms, which has an index, says when that ends; a flush
// sets it when there was none. A claim that comes late, behind the cursor, has a row in hold_dues.
type Expirer struct {
	relay   *Relay
	intact  func(ctx context.Context, partitions []int) ([]int, error)
	expired prometheus.Counter
	late    prometheus.Gauge
	overdue time.Duration // of the hold that has been over longest, in this pass

	pace      *rate.Limiter // by expireRate, but in tests
	batchSize int           // is expireBatch, but in tests
	lots      int           // is expirePage, but in tests
	steps     steps.Steps
}

// NewExpirer makes an expirer whose decisions relay applies to Redis; reg may be nil. intact returns those of some partitions whose holds may
// end: a MySQL that is behind may lack redeems. See lots.Loader.OK; nil is all of them.
func NewExpirer(
	relay *Relay, intact func(ctx context.Context, partitions []int) ([]int, error), reg prometheus.Registerer,
) *Expirer {
	return &Expirer{
		relay: relay, intact: intact, pace: rate.NewLimiter(expireRate, expireBatch), batchSize: expireBatch, lots: expirePage,
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that no one redeemed in time and that this process released.",
		}),
		late: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "dibs_holds_late_seconds", Help: "For how long the hold that is open longest has been over. 0 on who does not lead.",
		}),
	}
}

// Expire releases what is due and returns how many claims that was. It goes over the lots in which claims are due again and again, and
// each time takes no more of one than its share of a transaction. A failure is returned after the others had their turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	for more := true; more; {
		var n int
		n, more, err = e.pass(ctx)
		expired += n
		if err != nil {
			return expired, fmt.Errorf("resolve: expire: %w", err)
		}
	}
	return expired, nil
}

// pass gives the lots in which claims are due a turn, those first that wait longest, and then single claims. more reports whether another
// pass has something to do.
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
	n, more, err := e.turn(ctx, lots, now)
	singles, moreSingles, singleErr := e.singles(ctx, now)
	e.late.Set(e.overdue.Seconds())
	return n + singles, more || moreSingles, errors.Join(err, singleErr)
}

// ofIntact are the lots of partitions that MySQL has applied to the tip.
func ofIntact[T any](ctx context.Context, e *Expirer, all []T, lotOf func(*T) string) ([]T, error) {
	if e.intact == nil || len(all) == 0 {
		return all, nil
	}
	partitionOf := func(one *T) int { return lua.PartitionOf(lotOf(one), e.relay.scripts.Partitions()) }
	var partitions []int
	for i := range all {
		partitions = append(partitions, partitionOf(&all[i]))
	}
	slices.Sort(partitions)
	intact, err := e.intact(ctx, slices.Compact(partitions))
	return slices.DeleteFunc(all, func(one T) bool { return !slices.Contains(intact, partitionOf(&one)) }), err
}

// ResetMetrics sets the gauge to 0: another process leads.
func (e *Expirer) ResetMetrics() { e.late.Set(0) }

// turn goes over a share of the claims of each lot of a page.
func (e *Expirer) turn(ctx context.Context, lots []heldLot, now time.Time) (expired int, more bool, err error) {
	lots, err = ofIntact(ctx, e, lots, (*heldLot).id)
	if len(lots) == 0 {
		return 0, false, err
	}
	e.overdue = max(e.overdue, now.Sub(time.UnixMilli(*lots[0].DueMs)))
	share := max(1, e.batchSize/len(lots))
	var all []heldClaim
	failed := []error{err}
	failed = append(failed, apart(lots, (*heldLot).id, func(part []heldLot) error {
		ended, err := e.goOver(ctx, part, share, now)
		all = append(all, ended...)
		more = more || err == nil
		return err
	}))
	failed = append(failed, e.tell(ctx, all))
	return len(all), more, errors.Join(failed...)
}

// goOver is the transaction that ends holds and moves the cursors of lots.
func (e *Expirer) goOver(ctx context.Context, lots []heldLot, share int, now time.Time) (ended []heldClaim, err error) {
	for {
		err = e.inTx(ctx, func(tx *sqlstore.Tx) (err error) {
			if err := lock(ctx, tx, lots); err != nil {
				return err
			}
			ended, err = walk(ctx, tx, lots, share, now)
			if err != nil {
				return err
			}
			e.steps.At("found")
			if err := e.end(ctx, tx, ended); err != nil {
				return err
			}
			return move(ctx, e.relay.db, tx, lots)
		})
		if !errors.Is(err, errRaced) { // then at least one claim fewer is undecided
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("resolve: expire: %w", err)
	}
	e.steps.At("committed")
	return ended, nil
}

// end decides that claims have expired.
func (e *Expirer) end(ctx context.Context, tx *sqlstore.Tx, claims []heldClaim) error {
	if len(claims) == 0 {
		return nil
	}
	d := &decision{event: models.EventClaimReleased, isExpiry: true}
	if err := d.apply(claims, sqlstore.Now()); err != nil {
		return err
	}
	return d.write(ctx, tx, e.relay.db, claims, &e.steps)
}

// singles ends the holds of hold_dues.
func (e *Expirer) singles(ctx context.Context, now time.Time) (expired int, more bool, err error) {
	db := e.relay.db.WithContext(ctx)
	var dues []models.HoldDue
	if err := db.Where("due_ms <= ?", now.UnixMilli()).Order("due_ms").Limit(e.batchSize).Find(&dues).Error; err != nil || len(dues) == 0 {
		return 0, false, err
	}
	ids := sqlstore.Keys(dues, func(d *models.HoldDue) string { return d.ClaimID })
	claims, err := readClaims(ctx, e.relay.db, ids)
	if err != nil {
		return 0, false, err
	}
	claims, err = ofIntact(ctx, e, claims, func(c *heldClaim) string { return c.LotID() })
	if len(claims) == 0 {
		return 0, false, err
	}
	ids = sqlstore.Keys(claims, func(c *heldClaim) string { return c.ID })
	claims = slices.DeleteFunc(claims, func(c heldClaim) bool { return c.Status != models.ClaimClaimed || c.Kind == models.KindPacket })
	txErr := e.inTx(ctx, func(tx *sqlstore.Tx) error {
		if err := e.end(ctx, tx, claims); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM hold_dues WHERE claim_id IN "+sqlstore.Marks(len(ids)), sqlstore.Args(ids)...)
		return err
	})
	if txErr != nil {
		return 0, false, errors.Join(err, fmt.Errorf("resolve: expire: %w", txErr))
	}
	e.overdue = max(e.overdue, now.Sub(time.UnixMilli(dues[0].DueMs)))
	return len(claims), true, errors.Join(err, e.tell(ctx, claims))
}

// tell brings the ends of holds to Redis, no more a second than expireRate.
func (e *Expirer) tell(ctx context.Context, claims []heldClaim) error {
	if len(claims) == 0 {
		return nil
	}
	e.expired.Add(float64(len(claims)))
	err := e.relay.applyDecided(ctx, claims) // what fails the relay tries again
	if paceErr := e.pace.WaitN(ctx, len(claims)); paceErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", context.DeadlineExceeded, paceErr)) // of the round: the next one goes on
	}
	return err
}
