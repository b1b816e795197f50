package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

const (
	attendEvery  = 5 * time.Second  // pause between two searches for lots that need attention
	attendRest   = 15 * time.Second // the same, after a search that found none
	retryRestore = 2 * time.Second  // the pause after a restore that failed
	restoreAgain = time.Minute      // a lot that could not be restored is tried again
	evictEvery   = 10 * time.Second // pause between two eviction passes, unless DIBS_IDLE_EVICT is shorter
	evictPage    = 500              // lots of an eviction pass
	evictAtOnce  = 50               // of these are sent to Redis in one round trip: about a millisecond of its time
	maxQueued    = 4096             // lots that wait for the next round
)

// MinIdle evicts every campaign that may be evicted.
const MinIdle = time.Millisecond

// Maintainer tends lots without being asked. Watch detects a server that lost data. Maintain runs the Hydrator for each lot that needs
// attention, and evicts idle ones. Each of the two is for one goroutine; any number of processes may have a Maintainer.
type Maintainer struct {
	h         *Hydrator
	idle      time.Duration
	restore   func(ctx context.Context, lotID string) (restored bool, err error)
	evictions prometheus.Counter
	lost      prometheus.Gauge
	parked    prometheus.Gauge

	generations map[int]string // of the partitions, at the last Watch
	evicted     string         // the lot behind which the next page of evicted ones begins
	isDue       atomic.Bool    // a generation changed: lots may need attention

	attendAt time.Time
	evictAt  time.Time
	resident string               // as evicted
	page     int                  // is the constant, but in tests
	failed   map[string]time.Time // lots that could not be restored, and when they were tried
}

// NewMaintainer makes a maintainer of the lots that a hydrator loads. It evicts lots without a claim or a load for idle, by Redis' clock.
// The leader's restore repairs a lot that is lost because MySQL was rolled back; with nil it is not done. With a nil Registerer there are
// no metrics.
func NewMaintainer(
	h *Hydrator, idle time.Duration, restore func(ctx context.Context, lotID string) (restored bool, err error), reg prometheus.Registerer,
) *Maintainer {
	return &Maintainer{
		h: h, idle: idle, restore: restore, evictions: newEvictions(reg), lost: newCampaignsLost(reg), parked: newEventsParked(reg),
		generations: make(map[int]string), page: evictPage, failed: make(map[string]time.Time),
	}
}

// Queue has the maintainer of this process attend to a lot. A full queue drops it: who finds the lot again queues it again.
func (h *Hydrator) Queue(lotID string) {
	select {
	case h.queue <- lotID:
	default:
	}
}

// after is where the next page of a scan of lots begins: at the start again, behind the last one.
func after(page []models.Campaign) string {
	if len(page) == 0 {
		return ""
	}
	return page[len(page)-1].ID
}

// Watch observes all claim streams, records how far they are, and checks a page of the evicted lots. It returns how many streams turn out
// to have lost entries; Maintain then attends to their lots. Errors: those of lua.Scripts and of the database, after the others had their
// turn.
func (m *Maintainer) Watch(ctx context.Context) (broken int, err error) {
	s := &m.h.streams
	all, err := s.observe(ctx, s.partitions()...)
	if err != nil {
		return 0, err
	}
	var failed []error
	for i := range all {
		seen := &all[i]
		partition := seen.row.Partition
		err := seen.err
		if err == nil && recovery.PlanPartition(&seen.Partition).Action != recovery.None {
			seen, err = s.intact(ctx, partition)
		}
		if err == nil {
			if seen.isNew {
				broken++
			}
			last, known := m.generations[partition]
			if seen.isNew || known && last != seen.row.Generation { // another process may have changed it
				m.isDue.Store(true)
			}
			m.generations[partition] = seen.row.Generation
			err = s.record(ctx, seen)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return broken, errors.Join(append(failed, m.checkEvicted(ctx))...)
}

// checkEvicted examines lots that Redis holds although they were evicted: it was rolled back to a time before that. Perhaps nothing else
// shows it, and such a lot would not be notified of changes.
func (m *Maintainer) checkEvicted(ctx context.Context) error {
	s := &m.h.streams
	page, err := campaigns.Lots(ctx, s.db, lua.MaxFences, "id, epoch", "residency = ?", models.ResidencyEvicted)(m.evicted)
	if err != nil {
		return err
	}
	m.evicted = after(page)
	stopped, err := s.stop(ctx, page)
	for _, id := range stopped {
		err = errors.Join(err, m.h.Examine(ctx, id))
	}
	return err
}

// Maintain does what is due: it takes care of the lots that were queued, of those that need attention, and in the process that leads of
// those that are idle. Failures are returned after the others had their turn.
func (m *Maintainer) Maintain(ctx context.Context, leads bool) error {
	now := time.Now()
	var failed []error
	for range len(m.h.queue) {
		_, err := m.attend(ctx, &models.Campaign{ID: <-m.h.queue}, false)
		failed = append(failed, err)
	}
	if m.isDue.Swap(false) || !now.Before(m.attendAt) {
		completed, err := m.Attend(ctx, leads)
		if completed > 0 {
			m.h.log.LogAttrs(ctx, slog.LevelInfo, "completed campaigns that a crash left half done", slog.Int("campaigns", completed))
		}
		failed = append(failed, err)
	}
	if leads && !now.Before(m.evictAt) {
		m.evictAt = now.Add(min(evictEvery, m.idle))
		_, err := m.Evict(ctx)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Attend goes once over all lots that need attention: changes that Redis does not have yet, loads that were started, lots that are lost,
// and those of a claim stream that lost entries. It returns how many it completed. A lot that stays lost is no error here. Any other
// failure is returned after the others had their turn.
func (m *Maintainer) Attend(ctx context.Context, leads bool) (completed int, err error) {
	maps.DeleteFunc(m.failed, func(_ string, at time.Time) bool { return time.Since(at) >= restoreAgain })
	fetch := campaigns.Lots(ctx, m.h.db, sqlstore.PageSize, "id, residency, residency_reason",
		"residency NOT IN ? AND epoch > 0 AND applied_version <> version"+
			" OR residency IN ? AND load_attempts > epoch OR residency = ? OR residency = ? AND stream_birth <>"+
			" COALESCE((SELECT birth FROM streams WHERE streams.partition_no = lot.partition_no), stream_birth)",
		[]models.Residency{models.ResidencyEvicted, models.ResidencyLost}, []models.Residency{models.ResidencyNone, models.ResidencyEvicted},
		models.ResidencyLost, models.ResidencyResident)
	lost := 0
	m.attendAt = time.Now().Add(attendRest)
	err = sqlstore.EachRow(ctx, campaigns.ID, fetch, func(c *models.Campaign) error {
		m.attendWithin(attendEvery)
		done, err := m.attend(ctx, c, leads)
		switch {
		case done:
			completed++
		case err == nil || c.Residency == models.ResidencyLost:
			lost++
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return completed, err
	}
	m.lost.Set(float64(lost))
	var parked int64
	countErr := sqlstore.On(m.h.db.WithContext(ctx)).Scan(&parked, "SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NULL")
	if countErr == nil {
		m.parked.Set(float64(parked))
	}
	return completed, errors.Join(err, countErr)
}

// attendWithin has the next search begin no later than that.
func (m *Maintainer) attendWithin(pause time.Duration) {
	if at := time.Now().Add(pause); at.Before(m.attendAt) {
		m.attendAt = at
	}
}

// attend runs the Hydrator for a lot, or restores it. done is false for a lot that takes no claims then.
func (m *Maintainer) attend(ctx context.Context, c *models.Campaign, leads bool) (done bool, err error) {
	isRolledBack := c.Residency == models.ResidencyLost && strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack)
	if !isRolledBack || !leads || m.restore == nil {
		_, err = m.h.Hydrate(ctx, c.ID)
		if errors.Is(err, campaigns.ErrLost) {
			return false, nil
		}
		return err == nil, err
	}
	if _, tried := m.failed[c.ID]; tried {
		return false, nil
	}
	done, err = m.restore(ctx, c.ID)
	switch {
	case err != nil:
		m.attendWithin(retryRestore)
	case !done:
		m.failed[c.ID] = time.Now()
	}
	return done, err
}

// Evict checks the next page of the lots that are resident in MySQL, and returns how many it evicted: those that nobody claims from and
// of which MySQL has every claim, unless the lot, or packets of it, have yet to begin. An eviction takes two steps:
//
//  1. Redis deletes all keys of the lot, if load, claims and idle time are still as given, and leaves a tombstone.
//  2. MySQL records that the lot was evicted in full.
//
// If the process dies in between, the next one that reads the tombstone takes step 2. Any number may run at once. The tombstone stays
// until the lot is loaded again: a load of less than was evicted is refused. A lot that turns out to be gone is examined, see
// Hydrator.Examine. A failure is returned after the others had their turn.
func (m *Maintainer) Evict(ctx context.Context) (evicted int, err error) {
	page, err := campaigns.Lots(ctx, m.h.db, m.page, "id, epoch, synced_seq", "residency = ? AND applied_version = version",
		models.ResidencyResident)(m.resident)
	if err != nil {
		return 0, err
	}
	m.resident = after(page)
	var failed []error
	for some := range slices.Chunk(page, evictAtOnce) {
		if ctx.Err() != nil {
			break
		}
		n, err := m.evict(ctx, some)
		evicted += n
		failed = append(failed, err)
	}
	return evicted, errors.Join(failed...)
}

// EvictOne evicts a campaign if it may be. evicted is true if it is not in Redis then, by its books.
func (m *Maintainer) EvictOne(ctx context.Context, campaignID string) (evicted bool, err error) {
	c, err := campaigns.Read(m.h.db.WithContext(ctx), campaignID)
	if err != nil || c.Residency == models.ResidencyEvicted || !campaigns.IsResident(&c) {
		return err == nil && c.Residency != models.ResidencyLost, err
	}
	n, err := m.evict(ctx, []models.Campaign{c})
	return n == 1, err
}

// evict evicts those of some lots that may be, and returns how many. If it ends halfway, lots are gone that MySQL has as resident: their
// tombstones show it.
func (m *Maintainer) evict(ctx context.Context, lots []models.Campaign) (evicted int, err error) {
	gone, errs := m.h.scripts.EvictAll(ctx, lots, m.idle)
	var failed []error
	for i := range lots {
		c := &lots[i]
		err := errs[i]
		switch {
		case errors.Is(err, lua.ErrAbsent):
			err = m.h.Examine(ctx, c.ID)
		case err != nil:
			err = fmt.Errorf("residency: evict %s: %w", c.ID, err)
		case gone[i]:
			err = m.evictGone(ctx, c)
			if err == nil {
				evicted++
			}
		}
		failed = append(failed, err)
	}
	return evicted, errors.Join(failed...)
}

// evictGone takes step 2 for a lot that Redis holds no more.
func (m *Maintainer) evictGone(ctx context.Context, c *models.Campaign) error {
	m.h.steps.At("gone")
	if err := recordEviction(ctx, m.h.db, c.ID, lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq}); err != nil {
		return err
	}
	m.h.steps.At("recorded")
	m.evictions.Inc()
	m.h.log.LogAttrs(ctx, slog.LevelInfo, "campaign evicted from redis: it was idle and mysql has all its claims",
		slog.String("campaign_id", c.ID), slog.Int64("epoch", c.Epoch), slog.Int64("claims", c.SyncedSeq))
	return nil
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
