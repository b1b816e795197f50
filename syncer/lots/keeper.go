package lots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/parking"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	attendEvery  = 2 * time.Second  // pause between two checks for lots to load or notify
	measureEvery = 10 * time.Second // pause between two sums over all lots, for gauges
	// pause between two eviction passes, unless DIBS_IDLE_EVICT is shorter.
	evictEvery    = 10 * time.Second
	evictPage     = 500             // lots of an eviction pass
	evictAtOnce   = 50              // sent in one round trip: about 1 ms of Redis' time
	completeEvery = 5 * time.Second // how old complete_at of an idle stream may become
	okWait        = 200 * time.Millisecond
)

// MinIdle evicts every lot that may be evicted.
const MinIdle = time.Millisecond

// Keeper maintains lots on its own schedule.
// It serves one goroutine of the leader.
type Keeper struct {
	l       *Loader
	idle    time.Duration
	metrics keeperMetrics

	attendAt, measureAt, evictAt time.Time

	resident string // the next page of resident lots starts after this one
	page     int    // evictPage, except in tests
}

// NewKeeper returns a keeper that evicts lots idle for a time by Redis'
// clock. With a nil Registerer it has no metrics.
func NewKeeper(l *Loader, idle time.Duration, reg prometheus.Registerer) *Keeper {
	return &Keeper{l: l, idle: idle, metrics: newKeeperMetrics(reg), page: evictPage}
}

// Keep runs the due tasks. A failing task does not stop the others.
func (k *Keeper) Keep(ctx context.Context) error {
	now := time.Now()
	failed := []error{k.Complete(ctx)}
	if !now.Before(k.attendAt) {
		k.attendAt = now.Add(attendEvery)
		failed = append(failed, k.Attend(ctx))
	}
	if !now.Before(k.measureAt) {
		k.measureAt = now.Add(measureEvery)
		failed = append(failed, k.measure(ctx))
	}
	if !now.Before(k.evictAt) {
		k.evictAt = now.Add(min(evictEvery, k.idle))
		_, err := k.Evict(ctx)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// ResetMetrics sets the gauges to 0 when another process leads.
func (k *Keeper) ResetMetrics() {
	k.metrics.lostClaims.Set(0)
	k.metrics.lostUnits.Set(0)
	k.metrics.parked.Set(0)
	k.metrics.partitions.Reset()
}

// proven selects shards to reload, as a credit proves that units left them.
const proven = "lot.shard > 0 AND EXISTS (SELECT 1 FROM stock_moves m" +
	" WHERE m.campaign_id = lot.campaign_id AND m.from_shard = lot.shard AND m.reload_upto >= lot.epoch)"

// Attend reloads lots that were loaded from rows that MySQL no longer
// has. It also sends Redis and the streams the definitions they lack.
func (k *Keeper) Attend(ctx context.Context) error {
	untold := campaigns.Lots(ctx, k.l.db, sqlstore.PageSize, "id", "untold = 1")
	err := sqlstore.EachRow(ctx, campaigns.ID, untold, func(c *models.Campaign) error {
		err := k.l.sender.Publish(ctx, c.ID)
		if errors.Is(err, lua.ErrOther) { // a loader, perhaps a dead one
			_, err = k.l.Load(ctx, c.ID)
		}
		return err
	})
	stale := campaigns.Lots(ctx, k.l.db, sqlstore.PageSize, "id",
		"residency = ? AND (reload_upto >= epoch AND reload_upto > 0 OR "+proven+")", models.ResidencyResident)
	return errors.Join(err, sqlstore.EachRow(ctx, campaigns.ID, stale, func(c *models.Campaign) error {
		return k.l.Reload(ctx, c.ID)
	}))
}

func (k *Keeper) measure(ctx context.Context) error {
	db := k.l.db.WithContext(ctx)
	var lost struct{ Claims, Units, Parked int64 }
	err := db.Raw("SELECT COALESCE(SUM(lost_claims), 0) AS claims, COALESCE(SUM(lost_units), 0) AS units," +
		" (SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NULL) AS parked FROM lots WHERE shard = 0").
		Scan(&lost).Error
	if err != nil {
		return fmt.Errorf("lots: what is lost: %w", err)
	}
	k.metrics.lostClaims.Set(float64(lost.Claims))
	k.metrics.lostUnits.Set(float64(lost.Units))
	k.metrics.parked.Set(float64(lost.Parked))
	var states []struct {
		State models.PartitionState
		N     int64
	}
	if err := db.Raw("SELECT state, COUNT(*) AS n FROM streams GROUP BY state").Scan(&states).Error; err != nil {
		return fmt.Errorf("lots: states of partitions: %w", err)
	}
	k.metrics.partitions.Reset()
	for _, state := range []models.PartitionState{models.PartitionOK, models.PartitionRecovering, models.PartitionGap} {
		k.metrics.partitions.WithLabelValues(string(state)).Set(0)
	}
	for _, one := range states {
		k.metrics.partitions.WithLabelValues(string(one.State)).Set(float64(one.N))
	}
	return nil
}

// Complete records the time up to which MySQL has every claim of a
// stream, by Redis' clock. A stream is complete at a moment when its
// last entry is MySQL's offset.
func (k *Keeper) Complete(ctx context.Context) error {
	var rows []models.StreamRecord
	if err := k.l.db.WithContext(ctx).Where("state = ?", models.PartitionOK).Find(&rows).Error; err != nil {
		return fmt.Errorf("lots: streams: %w", err)
	}
	if len(rows) == 0 {
		return nil
	}
	now, err := k.l.scripts.Now(ctx)
	if err != nil {
		return fmt.Errorf("lots: streams: %w", err)
	}
	partitions := make([]int, len(rows))
	for i := range rows {
		partitions[i] = rows[i].Partition
	}
	tips, err := k.l.scripts.Tips(ctx, partitions)
	if err != nil {
		return fmt.Errorf("lots: streams: %w", err)
	}
	var complete []int
	for i := range rows {
		row := &rows[i]
		isDue := row.OffsetAt != nil && row.CompleteAt.Before(*row.OffsetAt) || now.Sub(row.CompleteAt) >= completeEvery
		if isDue && row.OffsetID == tips[row.Partition].String() {
			complete = append(complete, row.Partition)
		}
	}
	if len(complete) == 0 {
		return nil
	}
	err = k.l.db.WithContext(ctx).Exec("UPDATE streams SET complete_at = ? WHERE partition_no IN ?", now, complete).Error
	if err != nil {
		return fmt.Errorf("lots: streams: %w", err)
	}
	return nil
}

// Evict checks the next page of resident lots and returns how many it
// evicted. It evicts idle lots unless their start, or a packet's, is
// ahead. The failure of a lot does not stop the others.
func (k *Keeper) Evict(ctx context.Context) (evicted int, err error) {
	page, err := campaigns.Lots(ctx, k.l.db, k.page, "id, epoch", "residency = ?", models.ResidencyResident)(k.resident)
	if err != nil {
		return 0, err
	}
	k.resident = ""
	if len(page) > 0 {
		k.resident = page[len(page)-1].ID
	}
	var failed []error
	for some := range slices.Chunk(page, evictAtOnce) {
		if ctx.Err() != nil {
			break
		}
		n, err := k.evict(ctx, some)
		evicted += n
		failed = append(failed, err)
	}
	return evicted, errors.Join(failed...)
}

// EvictOne evicts a lot if it may be evicted.
// evicted reports that Redis no longer has it.
func (k *Keeper) EvictOne(ctx context.Context, id string) (evicted bool, err error) {
	row, err := campaigns.Lots(ctx, k.l.db, 1, "id, epoch", "id = ?", id)("")
	if err != nil {
		return false, err
	}
	n, err := k.evict(ctx, row)
	return n == 1, err
}

func (k *Keeper) evict(ctx context.Context, cs []models.Campaign) (evicted int, err error) {
	removed, errs := k.l.scripts.Evict(ctx, cs, k.idle)
	for i := range cs {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("lots: evict %s: %w", cs[i].ID, errs[i])
		}
		if removed[i] {
			evicted++
			k.metrics.evictions.Inc()
			k.l.log.LogAttrs(ctx, slog.LevelInfo, "campaign evicted from redis: it was idle", slog.String("campaign_id", cs[i].ID))
		}
	}
	return evicted, errors.Join(errs...)
}

// OK returns the partitions that MySQL has applied to the tip and of which
// Redis lost nothing. The error is the reason why others are missing.
func (l *Loader) OK(ctx context.Context, partitions []int) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, okWait)
	defer cancel()
	return l.applied.Await(ctx, partitions)
}

// Applied waits until MySQL has applied a lot's claim stream. Errors:
// ErrAway.
func (l *Loader) Applied(ctx context.Context, id string) error {
	return l.await(ctx, id, []int{lua.PartitionOf(id, l.scripts.Partitions())})
}

// Live returns Redis' state of a lot once MySQL has
// all of its partition. Errors: ErrAway, lua.ErrAbsent
// of a lot that is away, and those of lua.Scripts.
func (l *Loader) Live(ctx context.Context, id string) (lua.State, error) {
	if _, err := l.OK(ctx, []int{lua.PartitionOf(id, l.scripts.Partitions())}); err != nil {
		return lua.State{}, fmt.Errorf("%w: %s: %w", ErrAway, id, err)
	}
	return l.scripts.State(ctx, id)
}

// Parked reads a lot's parked claims. Errors as parking.Read.
func (l *Loader) Parked(ctx context.Context, id string) (*parking.Claims, error) {
	return parking.Read(ctx, l.db, id)
}
