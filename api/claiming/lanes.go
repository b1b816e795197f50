package claiming

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"dibs/api/breaker"
	"dibs/lua"
	"dibs/models"
)

const (
	lookupTimeout = 2 * time.Second // of a look-up on a campaign's first claim
	lookupsMax    = 64              // concurrent look-ups
	// definitionWait bounds how long a campaign's first claim waits
	// for MySQL while Redis has the campaign.
	definitionWait = 250 * time.Millisecond

	campaignsMax = 10_000
	campaignIdle = 10 * time.Minute
)

// lanes holds the campaigns that this process got claims for. A campaign's
// first claim looks it up, in Redis or else in MySQL. The result never
// changes, see lua.Meta, unless the campaign is deleted: a claim notices.
// Missing campaigns are not cached.
type lanes struct {
	cfg          Config
	metrics      *metrics
	campaignsMax int           // in memory
	campaignIdle time.Duration // lanes without claims for this long are dropped

	lookups *semaphore.Weighted // running look-ups
	flights singleflight.Group

	breakers *breaker.Breakers
	mu       sync.RWMutex
	byID     map[string]*lane
	swept    time.Time
}

func newLanes(cfg Config, m *metrics) *lanes {
	return &lanes{
		cfg: cfg, metrics: m, campaignsMax: campaignsMax, campaignIdle: campaignIdle,
		lookups: semaphore.NewWeighted(lookupsMax), byID: make(map[string]*lane), swept: cfg.Clock(),
		breakers: breaker.New(cfg.States, cfg.Workers),
	}
}

// get finds a campaign's lane. Errors: models.ErrNotFound; any other
// means that the campaign is unavailable now.
func (ls *lanes) get(ctx context.Context, id string, now time.Time) (*lane, error) {
	if l := ls.known(id, now); l != nil {
		return l, nil
	}
	return ls.open(ctx, id)
}

// known is a campaign's lane, or nil if there was no claim for it.
func (ls *lanes) known(id string, now time.Time) *lane {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	l := ls.byID[id]
	if l != nil {
		l.used.Store(now.UnixNano())
	}
	return l
}

// open looks a campaign up, once for all concurrent requests.
func (ls *lanes) open(ctx context.Context, id string) (*lane, error) {
	flight := ls.flights.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		meta, at, err := ls.lookUp(ctx, id)
		if err != nil {
			return nil, err
		}
		l := ls.add(meta)
		l.latest.advance(at)
		return l, nil
	})
	select {
	case got := <-flight:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*lane), nil //nolint:forcetypeassert // see above
	case <-ctx.Done():
		return nil, fmt.Errorf("claiming: campaign %s: %w", id, ctx.Err())
	}
}

// lookUp finds a campaign, and the position that Redis must have reached.
func (ls *lanes) lookUp(ctx context.Context, id string) (meta lua.Meta, at lua.Position, err error) {
	if err := ls.lookups.Acquire(ctx, 1); err != nil {
		return meta, at, fmt.Errorf("claiming: too many campaigns are looked up at once: %w", err)
	}
	defer ls.lookups.Release(1)
	state, err := ls.cfg.States.State(ctx, id)
	if errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrDamaged) {
		meta, err = ls.cfg.Loader.Load(ctx, id)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			meta, err = ls.byShard(ctx, id, err)
		}
		return meta, at, err
	}
	if err != nil {
		return meta, at, err
	}
	if ls.cfg.Rows == nil {
		at = state.Position()
	}
	definitionCtx, cancel := context.WithTimeout(ctx, definitionWait)
	defer cancel()
	c, err := ls.cfg.Campaigns.Get(definitionCtx, id)
	if err != nil { // claims continue without MySQL
		return state.Meta, at, nil
	}
	return state.Meta, at.Later(knownOf(&c)), nil
}

// knownOf is MySQL's latest position of a lot: sold units have a row,
// were lost, or were seen by a process.
func knownOf(c *models.Campaign) lua.Position {
	return lua.Position{Epoch: c.Epoch, Seq: c.SeenSeq, Units: max(c.SeenUnits, c.SoldEver())}
}

func (ls *lanes) add(meta lua.Meta) *lane {
	l := newLane(&ls.cfg, ls.metrics, meta, ls.breakers.Of(meta.Partition))
	l.forget = func() { ls.forget(meta.CampaignID()) }
	now := ls.cfg.Clock()
	l.used.Store(now.UnixNano())
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if other := ls.byID[meta.ID]; other != nil {
		return other
	}
	ls.drop(now)
	ls.byID[meta.ID] = l
	return l
}

func (ls *lanes) forget(campaignID string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	maps.DeleteFunc(ls.byID, func(_ string, l *lane) bool { return l.meta.CampaignID() == campaignID })
}

// drop frees space for a lane. Periodically it drops idle lanes, and
// always the longest idle one when all are in use. A dropped lane that
// still has claims continues with them, but isn't found again.
func (ls *lanes) drop(now time.Time) {
	full := len(ls.byID) >= ls.campaignsMax
	if !full && now.Sub(ls.swept) < ls.campaignIdle {
		return
	}
	ls.swept = now
	idleSince := now.Add(-ls.campaignIdle).UnixNano()
	oldest := ""
	oldestUsed := int64(0)
	for id, l := range ls.byID {
		used := l.used.Load()
		if used < idleSince {
			delete(ls.byID, id)
		} else if oldest == "" || used < oldestUsed {
			oldest = id
			oldestUsed = used
		}
	}
	if len(ls.byID) >= ls.campaignsMax {
		delete(ls.byID, oldest)
	}
}
