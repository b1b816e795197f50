package claiming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

// desk is where the claims of one campaign are taken in this process.
type desk struct {
	meta     lua.Meta
	combiner combiner
	sold     soldOut
	seen     watermark
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
	round, began := d.sold.round.Load(), d.desks.cfg.Clock()
	replies, now, err := d.ask(reqs)
	if err == nil && d.isGone(replies, now) && d.hydrate() {
		// The script took nothing, so the same requests may be sent again.
		replies, now, err = d.ask(reqs)
	}
	if err != nil {
		d.sold.doubt()
		d.complain.Do(func() {
			d.desks.log.Warn("claims failed", slog.String("campaign_id", d.meta.ID), slog.Int("claims", len(reqs)), slog.Any("error", err))
		})
		return nil, err
	}
	d.seen.learn(now.Position)
	d.sold.learn(round, began, replies, now.Remaining)
	return replies, nil
}

func (d *desk) ask(reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.desks.cfg.CallTimeout)
	defer cancel()
	return d.desks.cfg.Claimer.ClaimAfter(ctx, d.meta, d.seen.now(), reqs)
}

// isGone tells whether Redis lacks the campaign, or some of it. It holds a campaign or does not, so all replies say it or none.
func (d *desk) isGone(replies []lua.ClaimReply, now lua.CampaignView) bool {
	if len(replies) == 0 {
		return false
	}
	if replies[0].Outcome == models.OutcomeRolledBack {
		d.desks.rolledBack.Inc()
		d.complain.Do(func() {
			seen := d.seen.now()
			d.desks.log.Error("redis went back: claims were lost", slog.String("campaign_id", d.meta.ID),
				slog.Int64("epoch", now.Epoch), slog.Int64("seq", now.Seq), slog.Int64("seen_epoch", seen.Epoch), slog.Int64("seen_seq", seen.Seq))
		})
		return true
	}
	// A part of it that is lost or is no hash damages the whole call; the record of one user does not.
	return replies[0].Outcome == models.OutcomeAbsent || replies[0].Outcome == models.OutcomeDamaged && now == lua.CampaignView{}
}

// watermark is the most that this process saw of a campaign in Redis.
type watermark struct {
	mu   sync.Mutex
	seen lua.Position
}

func (w *watermark) now() lua.Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *watermark) learn(seen lua.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen.Before(seen) {
		w.seen = seen
	}
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
	if _, err := d.desks.cfg.Hydrator.Recover(ctx, d.meta.ID, d.seen.now()); err != nil {
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
	log  *slog.Logger
	crew *workers.Workers
	seen combinerMetrics

	rolledBack prometheus.Counter

	lookups chan struct{} // holds a token for each lookup that may run
	flights singleflight.Group

	mu    sync.RWMutex
	byID  map[string]*desk
	swept time.Time
}

func newDesks(cfg Config, seen *claimMetrics) *desks {
	return &desks{
		cfg: cfg, log: cfg.Logger, crew: cfg.Workers, seen: seen.combiner, rolledBack: seen.rolledBack,
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
		meta, seen, err := ds.lookup(ctx, id)
		if err != nil {
			return nil, err
		}
		d := ds.add(meta)
		d.seen.learn(seen)
		return d, nil
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

// lookup finds a campaign and what is known of it so far. Where MySQL answers it knows what Redis must not be behind of.
func (ds *desks) lookup(ctx context.Context, id string) (lua.Meta, lua.Position, error) {
	select {
	case ds.lookups <- struct{}{}:
		defer func() { <-ds.lookups }()
	case <-ctx.Done():
		return lua.Meta{}, lua.Position{}, fmt.Errorf("api: too many campaigns are being looked up: %w", ctx.Err())
	}
	state, err := ds.cfg.States.State(ctx, id)
	gone := errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrDamaged)
	if gone || err == nil && (state.Status == models.StatusLoading || state.Status == models.StatusFenced) {
		meta, err := ds.cfg.Hydrator.Hydrate(ctx, id)
		return meta, lua.Position{}, err
	}
	if err != nil {
		return lua.Meta{}, lua.Position{}, err
	}
	seen := lua.Position{Epoch: state.Epoch, Seq: state.Seq}
	booksCtx, cancel := context.WithTimeout(ctx, booksWait)
	defer cancel()
	c, err := ds.cfg.Campaigns.Get(booksCtx, id)
	if err != nil { // claims go on without MySQL
		return state.Meta, seen, nil
	}
	forgot := state.Epoch == c.Epoch && state.Version < c.AppliedVersion
	if forgot || c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyLost {
		meta, err := ds.cfg.Hydrator.Hydrate(ctx, id) // Redis was put back to a time before that
		return meta, seen, err
	}
	if books := (lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq}); seen.Before(books) {
		seen = books
	}
	return state.Meta, seen, nil
}

// booksWait is how long a campaign's first claim waits for what MySQL knows of it.
const booksWait = 250 * time.Millisecond

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
