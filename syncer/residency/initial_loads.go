package residency

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
)

const (
	maxInitialLoads = 128                   // campaigns of a group
	maxGroups       = 4                     // groups under way at once in a process
	slowAfter       = 50 * time.Millisecond // a group that takes longer no longer holds up the next one
	firstsTimeout   = 4 * time.Second       // of a group: the time of its loader is not renewed
	firstNumber     = 1                     // of a load: the first that MySQL hands out of a campaign
	neverLoaded     = "epoch = 0 AND load_attempts = 0 AND residency = '" + string(models.ResidencyNone) + "'"
	withoutCounts   = "lots.synced_seq = 0 AND lots.claimed = 0 AND lots.lost_claims = 0 AND lots.seen_seq = 0 AND lots.released_claims = 0" +
		" AND lots.archived_claims = 0 AND lots.archived_units = 0 AND lots.archived_released = 0"
	withoutClaims = withoutCounts + " AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.campaign_id = lots.id AND claims.shard = 0)" +
		" AND NOT EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id)"
)

// initialLoads loads campaigns that were never loaded, many at once: those that were asked for while the group before was loaded are the
// next group. A group takes the steps of a load, see Hydrator, each for all of its campaigns in one statement or one round trip. What does
// not go the usual way leaves the group, and is loaded by itself.
type initialLoads struct {
	h *Hydrator

	mu      sync.Mutex
	waiting []*first
	running int // groups
	prompt  int // groups of these that have not used up their patience
}

// first is a campaign that may be loaded for the first time.
type first struct {
	id   string
	done chan struct{} // is closed when the group is done with it
	meta *lua.Meta     // nil: load it by itself
	seen *lot          // what was observed of one that is to be loaded by itself, if it is of use still
}

// load loads a campaign with others, if it was never loaded. Else, and after any failure, it returns no meta.
func (f *initialLoads) load(ctx context.Context, id string) (*lua.Meta, *lot) {
	if models.IsShardID(id) {
		return nil, nil
	}
	one := &first{id: id, done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, one)
	f.start()
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.meta, one.seen
	case <-ctx.Done():
		return nil, nil
	}
}

// start starts a group of those that wait, unless one was started just now. The caller holds mu.
func (f *initialLoads) start() {
	if len(f.waiting) == 0 || f.prompt > 0 || f.running == maxGroups {
		return
	}
	n := min(len(f.waiting), maxInitialLoads)
	group := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	f.running++
	f.prompt++
	prompt := true
	late := func() { // once; the caller holds mu
		if prompt {
			prompt = false
			f.prompt--
		}
		f.start()
	}
	patience := time.AfterFunc(slowAfter, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		late()
	})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), firstsTimeout)
		defer cancel()
		f.h.loadFirsts(ctx, group)
		for _, one := range group {
			close(one.done)
		}
		patience.Stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
		late()
	}()
}

// loadFirsts observes the campaigns of a group, loads those that were never loaded and have no claims, and sets meta of those that Redis
// holds then.
func (h *Hydrator) loadFirsts(ctx context.Context, group []*first) {
	byID := make(map[string]*first, len(group))
	ids := make([]string, len(group))
	for i, one := range group {
		ids[i] = one.id
		byID[one.id] = one
	}
	begun := time.Now()
	all, err := h.observeAll(ctx, ids...)
	var lots []*lot
	for _, o := range all {
		switch step := recovery.PlanLot(&o.Lot, recovery.Auto); {
		case o.row.IsSharded(): // its shards are loaded, each by itself
			byID[o.row.ID].hold(h, o)
		case step.Action == recovery.None:
			byID[o.row.ID].hold(h, o)
		case step.Action == recovery.Load && step.Epoch == firstNumber && o.row.IsBlank && o.row.Kind != models.KindPacket:
			lots = append(lots, o)
		default:
			byID[o.row.ID].seen = o
		}
	}
	if err == nil && len(lots) > 0 {
		lots, err = h.firstLoads(ctx, lots)
	}
	if err != nil {
		h.log.LogAttrs(ctx, slog.LevelWarn, "campaigns could not be loaded together: each is loaded by itself", slog.Any("error", err))
		return
	}
	for _, o := range lots {
		byID[o.row.ID].hold(h, o)
		h.seconds.Observe(time.Since(begun).Seconds())
		h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", o.row.ID), slog.Int64("epoch", firstNumber),
			slog.Int64("claims", 0), slog.Duration("took", time.Since(begun)))
	}
}

func (f *first) hold(h *Hydrator, o *lot) {
	if meta, err := h.scripts.MetaOf(&o.row.Campaign); err == nil {
		f.meta = &meta
	}
}

// firstLoads takes the steps of a load for all of some lots, and returns those that take claims then.
func (h *Hydrator) firstLoads(ctx context.Context, lots []*lot) ([]*lot, error) {
	loader := rand.Text()
	lots, err := h.beginFirsts(ctx, lots, loader)
	if err != nil || len(lots) == 0 {
		return nil, err
	}
	var confirmed []*lot
	defer func() {
		if len(confirmed) < len(lots) { // else their time runs out
			_ = sqlstore.On(h.db.WithContext(context.WithoutCancel(ctx))).
				Run("UPDATE lots SET loader = '' WHERE id IN ? AND loader = ?", idsOf(lots), loader)
		}
	}()
	h.steps.At("numbered")
	put := h.putFirsts(ctx, lots)
	h.steps.At("loaded")
	confirmed, err = h.confirmFirsts(ctx, put, loader)
	if err != nil || len(confirmed) == 0 {
		return nil, err
	}
	h.steps.At("confirmed")
	return h.openFirsts(ctx, confirmed)
}

// beginFirsts is step 1, and returns the lots that this loader has to itself.
func (h *Hydrator) beginFirsts(ctx context.Context, lots []*lot, loader string) ([]*lot, error) {
	isIntact, args := lacksNone(flushes(lots))
	ids := idsOf(lots)
	var changed int64
	err := sqlstore.Retry(ctx, func() (err error) {
		changed, err = sqlstore.On(h.db.WithContext(ctx)).Exec("UPDATE lots SET load_attempts = ?, loader = ?, loading_until = "+h.loaderTime()+
			" WHERE id IN ? AND "+neverLoaded+" AND (loader = '' OR loading_until <= "+h.now()+")"+isIntact,
			slices.Concat([]any{firstNumber, loader, ids}, args)...)
		return err
	})
	if err != nil || changed == int64(len(lots)) {
		return lots, err
	}
	return h.those(ctx, lots, "loader = ?", loader)
}

// those are the lots for which a condition is true in MySQL.
func (h *Hydrator) those(ctx context.Context, lots []*lot, condition string, args ...any) ([]*lot, error) {
	var ids []string
	err := sqlstore.On(h.db.WithContext(ctx)).Scan(&ids, "SELECT id FROM lots WHERE id IN ? AND "+condition,
		slices.Concat([]any{idsOf(lots)}, args)...)
	return slices.DeleteFunc(lots, func(o *lot) bool { return !slices.Contains(ids, o.row.ID) }), err
}

// putFirsts is steps 2 and 3, and returns the lots that Redis holds then.
func (h *Hydrator) putFirsts(ctx context.Context, lots []*lot) (put []*lot) {
	held := campaignsOf(lots)
	for i := range held {
		held[i].Epoch = firstNumber
		held[i].Version = 0
		held[i].Status = models.StatusLoading
	}
	loaded, errs := h.scripts.LoadAll(ctx, held)
	for i, o := range lots {
		if errs[i] == nil && loaded[i] {
			put = append(put, o)
		}
	}
	return put
}

// confirmFirsts is step 4, as confirm is, for lots of one partition and version together. It returns those that are confirmed.
func (h *Hydrator) confirmFirsts(ctx context.Context, lots []*lot, loader string) (confirmed []*lot, err error) {
	for some := range groups(lots, func(o *lot) [2]int64 { return [2]int64{int64(o.row.Partition), o.row.Version} }) {
		c := &some[0].row
		var changed int64
		err := sqlstore.Retry(ctx, func() (err error) {
			changed, err = sqlstore.On(h.db.WithContext(ctx)).Exec("UPDATE lots SET epoch = ?, residency = ?, residency_reason = '',"+
				" residency_at = ?, stream_birth = ?, loader = '' WHERE id IN ? AND version = ? AND loader = ? AND epoch = 0 AND residency = ?"+
				" AND load_attempts = ? AND "+withoutCounts+" AND (SELECT birth FROM streams WHERE streams.`partition` = ?) = ?",
				firstNumber, models.ResidencyResident, sqlstore.Now(), some[0].Generation, idsOf(some), c.Version, loader, models.ResidencyNone,
				firstNumber, c.Partition, some[0].Generation)
			return err
		})
		if err == nil && changed < int64(len(some)) {
			some, err = h.those(ctx, some, "epoch = ? AND residency = ? AND loader = ''", firstNumber, models.ResidencyResident)
		}
		if err != nil {
			return nil, fmt.Errorf("residency: first loads: %w", err)
		}
		confirmed = append(confirmed, some...)
	}
	for _, o := range confirmed {
		o.row.Epoch = firstNumber
	}
	return confirmed, nil
}

// openFirsts is step 5, as open is, and returns the lots that take claims.
func (h *Hydrator) openFirsts(ctx context.Context, lots []*lot) (opened []*lot, err error) {
	for i, err := range h.scripts.AdjustAll(ctx, campaignsOf(lots)) {
		if err == nil {
			opened = append(opened, lots[i])
		}
	}
	h.steps.At("adjusted")
	for some := range groups(opened, func(o *lot) int64 { return o.row.Version }) {
		if err := campaigns.RecordApplied(ctx, h.db, idsOf(some), some[0].row.Version); err != nil {
			return nil, err
		}
	}
	if len(opened) > 0 {
		h.steps.At("opened")
	}
	return opened, nil
}

// groups yields lots by a key.
func groups[K comparable](lots []*lot, key func(*lot) K) iter.Seq[[]*lot] {
	by := make(map[K][]*lot)
	for _, o := range lots {
		by[key(o)] = append(by[key(o)], o)
	}
	return maps.Values(by)
}

func idsOf(lots []*lot) []string {
	ids := make([]string, len(lots))
	for i, o := range lots {
		ids[i] = o.row.ID
	}
	return ids
}

func campaignsOf(lots []*lot) []models.Campaign {
	cs := make([]models.Campaign, len(lots))
	for i, o := range lots {
		cs[i] = o.row.Campaign
	}
	return cs
}
