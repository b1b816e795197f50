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
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ErrUndrained reports why a closed campaign can't be finalized yet.
var ErrUndrained = errors.New("resolve: closed campaign can't be finalized yet")

const (
	returnBatch = 5000 // positions of packets in a transaction

	// ReturnDelay is how long a campaign must stay drained before its
	// packets return. That is longer than what a dying Redis loses with
	// appendfsync everysec and a slow disk.
	ReturnDelay = 3 * time.Second
)

// Finalizer ends closed campaigns, each once. A campaign is drained
// when every accepted claim has its row, and every taken packet its
// owner. Then free packets return to the sender, and campaign.closed
// reports the amount. Each step may be repeated:
//
//  1. Free packets are marked as returned, in batches, unless there is no
//     sender.
//  2. One transaction records the end and adds campaign.closed to the outbox.
//     The event's id is derived from the campaign's.
//  3. The finalizer or the relay delivers it.
//
// First the campaign must be drained for ReturnDelay, by the same load
// and definition. A Redis that loses the close gives packets out again.
// Within that time the next round finds its definition too old, and
// reloads it. Later, the close is on disk. In that time processes also
// report what they saw: after a failover Redis and MySQL may both lack
// claims, which no claim shows any more.
//
// Finalize serves one goroutine; several processes do no harm.
type Finalizer struct {
	relay    *Relay
	loader   *lots.Loader
	clock    clockwork.Clock
	returned prometheus.Counter
	cursors  map[string]int64   // by campaign: the position up to which step 1 is done
	drained  map[string]drained // by campaign

	batch int           // returnBatch, except in tests
	delay time.Duration // ReturnDelay, except in tests
	steps steps.Steps
}

// NewFinalizer returns a finalizer whose events relay delivers; reg may be
// nil.
func NewFinalizer(relay *Relay, loader *lots.Loader, clock clockwork.Clock, reg prometheus.Registerer) *Finalizer {
	f := &Finalizer{
		relay: relay, loader: loader, clock: clock, batch: returnBatch, delay: ReturnDelay,
		cursors: make(map[string]int64), drained: make(map[string]drained),
		returned: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_packets_returned_total", Help: "Packets of closed campaigns that no one took and that this process returned.",
		}),
	}
	return f
}

// Finalize checks all closed campaigns once and returns how many it
// ended. Those with claims on their way, or drained too recently, wait.
// Any other reason is an ErrUndrained, returned after all were checked.
func (f *Finalizer) Finalize(ctx context.Context) (ended int, err error) {
	err = sqlstore.EachRow(ctx, campaigns.ID, func(after string) (page []models.Campaign, err error) {
		err = f.relay.db.WithContext(ctx).Select("id").
			Where("shard = 0 AND status = ? AND closed_told_at IS NULL AND id > ?", models.StatusClosed, after).
			Order("id").Limit(sqlstore.PageSize).Find(&page).Error
		return page, err
	}, func(c *models.Campaign) error {
		done, err := f.end(ctx, c.ID)
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

// end takes a campaign through the steps as far as possible.
func (f *Finalizer) end(ctx context.Context, id string) (ended bool, err error) {
	row, err := campaigns.Read(f.relay.db.WithContext(ctx), id)
	if err != nil {
		return false, err
	}
	c := &row
	isDrained, err := f.drainedNow(ctx, c)
	if err != nil || !isDrained {
		delete(f.drained, c.ID)
		return false, err
	}
	if isLong, err := f.drainedLongEnough(ctx, c); err != nil || !isLong {
		return false, err
	}
	if returnsPackets(c) {
		if err := f.returnPackets(ctx, c); err != nil {
			return false, err
		}
	}
	end, ended, err := f.writeEnd(ctx, c)
	if err != nil || !ended {
		return false, err
	}
	f.steps.At("committed")
	delete(f.cursors, c.ID)
	delete(f.drained, c.ID)
	if _, err := f.relay.Deliver(ctx, []stored.OutboxRow{end}); err != nil { // the relay retries
		return true, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	}
	return true, nil
}

func returnsPackets(c *models.Campaign) bool { return c.Kind == models.KindPacket && c.SenderID != "" }

// drained is the time since a campaign is
// drained, by which load and definition.
type drained struct {
	epoch, version int64
	since          time.Time
}

// drainedLongEnough reports whether a drained
// campaign has been so for ReturnDelay.
func (f *Finalizer) drainedLongEnough(ctx context.Context, c *models.Campaign) (bool, error) {
	now := f.clock.Now()
	seen := f.drained[c.ID]
	epoch := c.Epoch
	if c.IsSharded() { // a load of any shard raises the sum
		err := f.relay.db.WithContext(ctx).Raw("SELECT SUM(epoch) FROM lots WHERE campaign_id = ?", c.ID).Row().Scan(&epoch)
		if err != nil {
			return false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
		}
	}
	if seen.since.IsZero() || seen.epoch != epoch || seen.version != c.Version {
		if returnsPackets(c) {
			if err := f.relay.scripts.AskSeen(ctx, c.ShardIDs()); err != nil {
				return false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
			}
		}
		seen = drained{epoch: epoch, version: c.Version, since: now}
		f.drained[c.ID] = seen
	}
	return now.Sub(seen.since) >= f.delay, nil
}

// drainedNow reports whether all claims of a closed campaign have rows,
// and no more come. Then MySQL has applied the stream, and Redis has
// the close or lacks the campaign.
func (f *Finalizer) drainedNow(ctx context.Context, c *models.Campaign) (bool, error) {
	if c.IsSharded() {
		return f.shardsDrained(ctx, c)
	}
	state, err := f.loader.Live(ctx, c.ID)
	isAway := errors.Is(err, lua.ErrAbsent)
	switch {
	case isAway:
	case err == nil && state.Version < c.Version && c.AppliedVersion == c.Version:
		err = fmt.Errorf("%w: %s: redis has forgotten that it was closed", ErrUndrained, c.ID)
		return false, errors.Join(err, f.loader.Reload(ctx, c.ID))
	case errors.Is(err, lots.ErrAway), err == nil && state.Version < c.Version: // the leader delivers it
		return false, nil
	case err != nil:
		return false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	case state.Status != models.StatusClosed:
		return false, fmt.Errorf("%w: %s: redis says that it is %s", ErrUndrained, c.ID, state.Status)
	}
	if err := f.noneParked(ctx, c); err != nil {
		return false, err
	}
	isLost, err := f.loadLost(ctx, c.ID, isAway)
	return err == nil && !isLost, err
}

// loadLost loads a lot without parked claims if Redis lost it, as it lacks
// it though it was not evicted, or if a process saw more than MySQL has.
// The load counts what is lost, which an operator gives up.
func (f *Finalizer) loadLost(ctx context.Context, id string, isAway bool) (isLost bool, err error) {
	row, err := campaigns.Read(f.relay.db.WithContext(ctx), id)
	switch {
	case err != nil:
		return false, err
	case isAway && row.Residency == models.ResidencyResident, row.SeenUnits > row.SoldEver():
		if err := f.loader.Reload(ctx, id); err != nil {
			return true, fmt.Errorf("resolve: finalize: %w", err)
		}
		return true, nil
	case row.LostUnits > 0 && row.Kind == models.KindPacket:
		return true, fmt.Errorf("%w: %s: %d claims are lost: `dibs reconcile --repair --give-up-claims` gives them up",
			ErrUndrained, id, row.LostClaims)
	}
	return false, nil
}

// shardsDrained is drainedNow for the shards of a campaign.
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

// noneParked returns an ErrUndrained if a campaign
// has parked claims: these own their packets.
func (f *Finalizer) noneParked(ctx context.Context, c *models.Campaign) error {
	parked, err := f.loader.Parked(ctx, c.ID)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUndrained, err)
	}
	if names := parked.Names(); len(names) > 0 {
		return fmt.Errorf("%w: %s: %s", ErrUndrained, c.ID, names)
	}
	return nil
}
