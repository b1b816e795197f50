package resolve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ErrUndrained says that a closed campaign can't be finalized yet, and why: no one knows yet what was not taken.
var ErrUndrained = errors.New("resolve: closed campaign can't be finalized yet")

const (
	returnBatch = 5000 // places of packets of one transaction

	// ReturnDelay is how long a campaign must have been drained before its packets go back. It is longer than what a Redis with
	// appendfsync everysec forgets when it dies: a second, and another one while it waits for a slow disk.
	ReturnDelay = 3 * time.Second
)

// Finalizer ends closed campaigns, each once. A campaign is drained when every claim that Redis accepted has its row, and so
// every packet that was taken its owner. Then the packets that no one took return to the sender, and campaign.closed says how
// much that is. Three steps, any of which anybody may repeat:
//
//  1. Packets without an owner are marked as returned, in bounded batches. A campaign without a sender keeps its packets.
//  2. One transaction notes the end of the campaign and puts campaign.closed into the outbox. The id of that event follows from
//     the campaign's.
//  3. The event goes to the claim stream, by the finalizer or by the relay.
//
// None of this begins before the campaign was drained for ReturnDelay, under the same load and definition each time. A Redis that
// dies and forgets the close gives packets away again: if it does so within that time, the next round finds it behind the
// definition that was in force, and has it loaded again; if later, the close is on its disk.
//
// Finalize is for one goroutine; several processes at once do no harm.
type Finalizer struct {
	relay    *Relay
	loader   *lots.Loader
	clock    clockwork.Clock
	returned prometheus.Counter
	cursors  map[string]int64   // by campaign: the place of a packet up to which step 1 is done
	drained  map[string]drained // by campaign

	batch int           // is returnBatch, but in tests
	delay time.Duration // is ReturnDelay, but in tests
	steps steps.Steps
}

// NewFinalizer makes a finalizer whose events relay publishes; reg may be nil.
func NewFinalizer(relay *Relay, loader *lots.Loader, clock clockwork.Clock, reg prometheus.Registerer) *Finalizer {
	f := &Finalizer{
		relay: relay, loader: loader, clock: clock, cursors: make(map[string]int64), drained: make(map[string]drained),
		batch: returnBatch, delay: ReturnDelay,
		returned: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_packets_returned_total", Help: "Packets of closed campaigns that no one took and that this process returned.",
		}),
	}
	return f
}

// Finalize goes once over all closed campaigns whose end is not written and returns how many it ended. One whose claims are on
// their way, or that was not drained for long enough, waits for a later round. Any other reason to wait is returned, as an
// ErrUndrained, after the others had their turn.
func (f *Finalizer) Finalize(ctx context.Context) (ended int, err error) {
	err = sqlstore.EachRow(ctx, campaigns.ID, func(after string) (page []models.Campaign, err error) {
		err = f.relay.db.WithContext(ctx).Where("shard = 0 AND status = ? AND closed_told_at IS NULL AND id > ?", models.StatusClosed, after).
			Order("id").Limit(sqlstore.PageSize).Find(&page).Error
		return page, err
	}, func(c *models.Campaign) error {
		done, err := f.end(ctx, c)
		if done {
			ended++
		}
		return err
	})
	if err != nil {
		return ended, fmt.Errorf("resolve: finalize: %w", err)
	}
	return ended, nil
}

// end takes a campaign as far as it goes.
func (f *Finalizer) end(ctx context.Context, c *models.Campaign) (ended bool, err error) {
	isDrained, err := f.drainedNow(ctx, c)
	if err != nil || !isDrained {
		delete(f.drained, c.ID)
		return false, err
	}
	if isLong, err := f.drainedLongEnough(ctx, c); err != nil || !isLong {
		return false, err
	}
	if c.Kind == models.KindPacket && c.SenderID != "" {
		if err := f.returnPackets(ctx, c); err != nil {
			return false, err
		}
	}
	row, ended, err := f.writeEnd(ctx, c)
	if err != nil || !ended {
		return false, err
	}
	f.steps.At("committed")
	delete(f.cursors, c.ID)
	delete(f.drained, c.ID)
	if _, err := f.relay.Apply(ctx, []models.OutboxRow{row}); err != nil { // the relay tries again
		return true, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	}
	return true, nil
}

// drained is since when a campaign is drained, under which load and definition. The loads of all shards are added up.
type drained struct {
	epoch, version int64
	since          time.Time
}

// drainedLongEnough notes that a campaign is drained now, and says whether it has been for ReturnDelay.
func (f *Finalizer) drainedLongEnough(ctx context.Context, c *models.Campaign) (bool, error) {
	now := f.clock.Now()
	seen := f.drained[c.ID]
	epoch := c.Epoch
	if c.IsSharded() { // a load of any shard raises the sum
		err := sqlstore.On(f.relay.db.WithContext(ctx)).Row("SELECT SUM(epoch) FROM lots WHERE campaign_id = ?", c.ID).Scan(&epoch)
		if err != nil {
			return false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
		}
	}
	if seen.since.IsZero() || seen.epoch != epoch || seen.version != c.Version {
		seen = drained{epoch: epoch, version: c.Version, since: now}
		f.drained[c.ID] = seen
	}
	return now.Sub(seen.since) >= f.delay, nil
}

// drainedNow says whether each claim of a closed campaign that Redis ever accepted has its row, and none can come any more: MySQL has
// applied the stream to its tip, and Redis knows that the campaign is closed, or does not hold it.
func (f *Finalizer) drainedNow(ctx context.Context, c *models.Campaign) (bool, error) {
	if c.IsSharded() {
		return f.shardsDrained(ctx, c)
	}
	if c.LostUnits > 0 && c.Kind == models.KindPacket {
		return false, fmt.Errorf("%w: %s: %d claims are lost: `dibs reconcile --repair --give-up-claims` gives them up", ErrUndrained, c.ID, c.LostClaims)
	}
	state, err := f.loader.Live(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
	case err == nil && state.Version < c.Version && c.AppliedVersion == c.Version:
		return false, errors.Join(fmt.Errorf("%w: %s: redis has forgotten that it was closed", ErrUndrained, c.ID), f.loader.Reload(ctx, c.ID))
	case errors.Is(err, lots.ErrAway), err == nil && state.Version < c.Version: // the leader brings it to Redis
		return false, nil
	case err != nil:
		return false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	case state.Status != models.StatusClosed:
		return false, fmt.Errorf("%w: %s: redis says that it is %s", ErrUndrained, c.ID, state.Status)
	}
	return f.noneParked(ctx, c)
}

// shardsDrained is drainedNow for a campaign of several shards: each of them is drained.
func (f *Finalizer) shardsDrained(ctx context.Context, c *models.Campaign) (bool, error) {
	for _, id := range c.ShardIDs() {
		shard, err := campaigns.Read(f.relay.db.WithContext(ctx), id)
		if err != nil {
			return false, err
		}
		if isDrained, err := f.drainedNow(ctx, &shard); err != nil || !isDrained {
			return false, err
		}
	}
	return true, nil
}

// noneParked reports whether no claim of a campaign is parked: a parked claim was answered, and its packet is its user's.
func (f *Finalizer) noneParked(ctx context.Context, c *models.Campaign) (bool, error) {
	parked, err := f.loader.Parked(ctx, c.ID)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUndrained, err)
	}
	if names := parked.Names(); len(names) > 0 {
		return false, fmt.Errorf("%w: %s: %s", ErrUndrained, c.ID, names)
	}
	return true, nil
}
