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
	"dibs/models/event"
	"dibs/models/stored"
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

// Attend reloads lots that were loaded from rows that MySQL no longer
// has. It also sends Redis and the streams the definitions they lack.
func (k *Keeper) Attend(ctx context.Context) error {
	by := func(index string) string { return sqlstore.ByIndex(k.l.db, index) }
	reload := func(id *string) error { return k.l.Reload(ctx, *id) }
	return errors.Join(
		k.each(ctx, "lots AS lot"+by("lots_untold"), "lot.untold = 1", func(id *string) error {
			err := k.l.sender.Publish(ctx, *id)
			if errors.Is(err, lua.ErrOther) { // a loader, perhaps a dead one
				_, err = k.l.Load(ctx, *id)
			}
			return err
		}),
		k.each(ctx, "lots AS lot"+by("lots_reload"), "lot.reload_upto > 0 AND lot.reload_upto >= lot.epoch AND "+resident, reload),
		k.each(ctx, "stock_moves AS m"+by("stock_moves_reload")+" JOIN lots AS lot ON "+gave,
			"m.reload_upto > 0 AND m.reload_upto >= lot.epoch AND "+resident, reload),
	)
}

const (
	gave     = "m.campaign_id = lot.campaign_id AND m.from_shard = lot.shard"
	resident = "lot.residency = 'resident'"
)

// each runs do for the lots of tables that meet a condition. The tables name
// an index: by id, a round of many idle lots would read all.
func (k *Keeper) each(ctx context.Context, tables, where string, do func(id *string) error) error {
	query := "SELECT DISTINCT lot.id FROM " + tables + " WHERE " + where + " AND lot.id > ? ORDER BY lot.id LIMIT ?"
	return sqlstore.EachRow(ctx, sqlstore.Itself, func(after string) (page []string, err error) {
		err = k.l.db.WithContext(ctx).Raw(query, after, sqlstore.PageSize).Scan(&page).Error
		if err != nil {
			err = fmt.Errorf("lots: read lots: %w", err)
		}
		return page, err
	}, do)
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
		State event.PartitionState
		N     int64
	}
	if err := db.Raw("SELECT state, COUNT(*) AS n FROM streams GROUP BY state").Scan(&states).Error; err != nil {
		return fmt.Errorf("lots: states of partitions: %w", err)
	}
	k.metrics.partitions.Reset()
	for _, state := range []event.PartitionState{event.PartitionOK, event.PartitionRecovering, event.PartitionGap} {
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
	var rows []stored.StreamRecord
	if err := k.l.db.WithContext(ctx).Where("state = ?", event.PartitionOK).Find(&rows).Error; err != nil {
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
// evicted. It evicts idle lots that MySQL has all of, unless their start,
// or a packet's, is ahead. The failure of a lot does not stop the others.
func (k *Keeper) Evict(ctx context.Context) (evicted int, err error) {
	page, err := campaigns.Lots(ctx, k.l.db, k.page, "id, epoch", "residency = ?", models.ResidencyResident)(k.resident)
	if err != nil {
		return 0, err
	}
	k.resident = ""
	if len(page) > 0 {
		k.resident = page[len(page)-1].ID
	}
	page, err = k.applied(ctx, page)
	failed := []error{err}
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

// EvictOne evicts a lot if it may be evicted. evicted reports that Redis no
// longer has it. Errors: ErrAway of a lot that MySQL does not have all of.
func (k *Keeper) EvictOne(ctx context.Context, id string) (evicted bool, err error) {
	row, err := campaigns.Lots(ctx, k.l.db, 1, "id, epoch", "id = ?", id)("")
	if err == nil {
		err = k.l.Applied(ctx, id)
	}
	if err != nil {
		return false, err
	}
	n, err := k.evict(ctx, row)
	return n == 1, err
}

// applied returns the lots whose streams MySQL has applied. Of the others only
// Redis knows all: the stream may be trimmed past a restored MySQL.
func (k *Keeper) applied(ctx context.Context, all []models.Campaign) ([]models.Campaign, error) {
	partitionOf := func(c *models.Campaign) int { return lua.PartitionOf(c.ID, k.l.scripts.Partitions()) }
	var partitions []int
	for i := range all {
		partitions = append(partitions, partitionOf(&all[i]))
	}
	slices.Sort(partitions)
	ctx, cancel := context.WithTimeout(ctx, okWait)
	defer cancel()
	applied, err := k.l.applied.Await(ctx, slices.Compact(partitions))
	if errors.Is(err, context.DeadlineExceeded) { // a later round finds them
		err = nil
	}
	return slices.DeleteFunc(all, func(c models.Campaign) bool { return !slices.Contains(applied, partitionOf(&c)) }), err
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
