package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"dibs/lua"
	"dibs/models"
)

// desk is where the claims of one campaign are taken in this process.
type desk struct {
	meta     lua.Meta
	combiner combiner
	sold     soldOut
	used     atomic.Int64 // nanoseconds since 1970

	desks    *desks
	complain rate.Sometimes // when Redis is away every call fails

	hydrating  sync.Mutex
	hydratedAt time.Time // the last attempt
	hydratedOK bool
}

// hydrateEvery keeps a campaign that can't be brought back from costing MySQL a question per call.
const hydrateEvery = 100 * time.Millisecond

// call runs one script call for the combiner, on its own time: a caller that leaves must not take the others along.
func (d *desk) call(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
	round := d.sold.round.Load()
	replies, remaining, err := d.ask(reqs)
	if err == nil && anyAbsent(replies) && d.hydrate() {
		// The script took nothing, so the same requests may be sent again.
		replies, remaining, err = d.ask(reqs)
	}
	if err != nil {
		d.sold.doubt()
		d.complain.Do(func() {
			d.desks.log.Warn("claims failed", slog.String("campaign_id", d.meta.ID), slog.Int("claims", len(reqs)), slog.Any("error", err))
		})
		return nil, err
	}
	d.sold.learn(round, d.desks.cfg.Clock(), replies, remaining)
	return replies, nil
}

func (d *desk) ask(reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.desks.cfg.CallTimeout)
	defer cancel()
	return d.desks.deps.Claimer.Claim(ctx, d.meta, reqs)
}

// anyAbsent: Redis holds a campaign or does not, so all replies say it or none.
func anyAbsent(replies []lua.ClaimReply) bool {
	return len(replies) > 0 && replies[0].Outcome == models.OutcomeAbsent
}

// hydrate has the campaign brought back to Redis and tells whether asking again makes sense.
func (d *desk) hydrate() bool {
	d.hydrating.Lock()
	defer d.hydrating.Unlock()
	now := d.desks.cfg.Clock()
	if now.Sub(d.hydratedAt) < hydrateEvery {
		return d.hydratedOK
	}
	d.hydratedAt, d.hydratedOK = now, false
	ctx, cancel := context.WithTimeout(context.Background(), d.desks.cfg.LookupTimeout)
	defer cancel()
	if _, err := d.desks.deps.Hydrator.Hydrate(ctx, d.meta.ID); err != nil {
		d.complain.Do(func() {
			d.desks.log.Warn("campaign is not in redis", slog.String("campaign_id", d.meta.ID), slog.Any("error", err))
		})
		return false
	}
	d.hydratedOK = true
	return true
}

// desks are the campaigns that this process has seen claims of. A campaign is looked up on its first claim: in Redis, or
// else in MySQL. What was found never changes, see lua.Meta; that there is no such campaign is not remembered.
type desks struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	crew *crew
	seen combinerMetrics

	lookups chan struct{} // holds a token for each lookup that may run
	flights singleflight.Group

	mu    sync.RWMutex
	byID  map[string]*desk
	swept time.Time
}

func newDesks(cfg Config, deps Deps, seen combinerMetrics) *desks {
	return &desks{
		cfg: cfg, deps: deps, log: cfg.Logger, crew: newCrew(), seen: seen,
		lookups: make(chan struct{}, cfg.LookupsMax), byID: make(map[string]*desk), swept: cfg.Clock(),
	}
}

// of finds the desk of a campaign. Errors: models.ErrNotFound; any other means that the campaign is not available now.
func (ds *desks) of(ctx context.Context, id string, now time.Time) (*desk, error) {
	if d := ds.known(id, now); d != nil {
		return d, nil
	}
	d, err := ds.open(ctx, id)
	if err != nil {
		return nil, err
	}
	d.used.Store(now.UnixNano())
	return d, nil
}

// known is the desk of a campaign that this process has seen claims of; nil if it has not.
func (ds *desks) known(id string, now time.Time) *desk {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	d := ds.byID[id]
	if d != nil {
		d.used.Store(now.UnixNano())
	}
	return d
}

// open looks a campaign up, once for all who ask at the same time.
func (ds *desks) open(ctx context.Context, id string) (*desk, error) {
	flight := ds.flights.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), ds.cfg.LookupTimeout)
		defer cancel()
		meta, err := ds.lookup(ctx, id)
		if err != nil {
			return nil, err
		}
		return ds.add(meta), nil
	})
	select {
	case got := <-flight:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*desk), nil //nolint:forcetypeassert // see above
	case <-ctx.Done():
		return nil, fmt.Errorf("api: campaign %s: %w", id, ctx.Err())
	}
}

func (ds *desks) lookup(ctx context.Context, id string) (lua.Meta, error) {
	select {
	case ds.lookups <- struct{}{}:
		defer func() { <-ds.lookups }()
	case <-ctx.Done():
		return lua.Meta{}, fmt.Errorf("api: too many campaigns are being looked up: %w", ctx.Err())
	}
	state, err := ds.deps.States.State(ctx, id)
	if errors.Is(err, lua.ErrAbsent) {
		return ds.deps.Hydrator.Hydrate(ctx, id)
	}
	return state.Meta, err
}

func (ds *desks) add(meta lua.Meta) *desk {
	d := &desk{meta: meta, desks: ds, complain: rate.Sometimes{Interval: time.Second}}
	d.sold.lasts = ds.cfg.SoldOutFor
	d.combiner = combiner{
		call: d.call, crew: ds.crew, perCall: ds.cfg.ClaimsPerCall, calls: ds.cfg.ClaimsInFlight, most: ds.cfg.QueueMax,
		waitMax: ds.cfg.QueueWait, clock: ds.cfg.Clock, seen: ds.seen,
	}
	now := ds.cfg.Clock()
	d.used.Store(now.UnixNano())
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if there := ds.byID[meta.ID]; there != nil {
		return there
	}
	ds.sweep(now)
	ds.byID[meta.ID] = d
	return d
}

// sweep makes room: campaigns without claims for long go now and then, the oldest when there are too many. A desk that is
// still in use somewhere goes on working; it is only not found any more.
func (ds *desks) sweep(now time.Time) {
	full := len(ds.byID) >= ds.cfg.CampaignsMax
	if !full && now.Sub(ds.swept) < ds.cfg.CampaignIdle {
		return
	}
	ds.swept = now
	idleSince := now.Add(-ds.cfg.CampaignIdle).UnixNano()
	oldest, oldestUsed := "", int64(0)
	for id, d := range ds.byID {
		used := d.used.Load()
		if used < idleSince {
			delete(ds.byID, id)
		} else if oldest == "" || used < oldestUsed {
			oldest, oldestUsed = id, used
		}
	}
	if len(ds.byID) >= ds.cfg.CampaignsMax {
		delete(ds.byID, oldest)
	}
}

// changed is told of each change of a campaign by this process.
func (ds *desks) changed(id string) {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	if d := ds.byID[id]; d != nil {
		d.sold.forget()
	}
}
