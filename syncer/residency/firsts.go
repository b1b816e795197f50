package residency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

const (
	firstsMost    = 128                   // campaigns of a group
	groupsMost    = 4                     // groups under way at once in a process
	groupPatience = 50 * time.Millisecond // a group that takes longer no longer holds up the next one
	firstsTimeout = loadLockFor * 4 / 5   // of a group: the locks of its campaigns are not renewed
	firstNumber   = 1                     // of a load: the first that MySQL hands out of a campaign
	neverLoaded   = "epoch = 0 AND load_attempts = 0 AND residency = '" + string(models.ResidencyNone) + "'"
	withoutCounts = "synced_seq = 0 AND claimed = 0 AND lost_claims = 0 AND seen_seq = 0 AND released_claims = 0" +
		" AND archived_claims = 0 AND archived_units = 0 AND archived_released = 0"
	withoutClaims = withoutCounts + " AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.campaign_id = lots.id AND claims.shard = 0)" +
		" AND NOT EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id)"
)

// firsts loads campaigns that were never loaded, many at once: those that were asked for while the group before was loaded are the next
// group. A group takes the steps of a load, see Hydrator, each for all of its campaigns in one statement or one round trip. What does not
// go the usual way leaves the group, and is loaded by itself.
type firsts struct {
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
}

// load loads a campaign with others, if it was never loaded. Else, and after any failure, it returns nil.
func (f *firsts) load(ctx context.Context, id string) *lua.Meta {
	if models.IsShardID(id) {
		return nil
	}
	one := &first{id: id, done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, one)
	f.start()
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.meta
	case <-ctx.Done():
		return nil
	}
}

// start starts a group of those that wait, unless one was started just now. The caller holds mu.
func (f *firsts) start() {
	if len(f.waiting) == 0 || f.prompt > 0 || f.running == groupsMost {
		return
	}
	n := min(len(f.waiting), firstsMost)
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
	patience := time.AfterFunc(groupPatience, func() {
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

// loadFirsts loads those campaigns of a group that were never loaded and have no claims, and sets meta of those that Redis holds then.
func (h *Hydrator) loadFirsts(ctx context.Context, group []*first) {
	byID := make(map[string]*first, len(group))
	ids := make([]string, len(group))
	for i, one := range group {
		ids[i] = one.id
		byID[one.id] = one
	}
	locks, err := h.scripts.LockCampaigns(ctx, ids, loadLockFor)
	if err != nil {
		h.leaveGroup(ctx, "lock", err)
		return
	}
	defer func() { _ = locks.Release(context.WithoutCancel(ctx)) }() // they run out by themselves
	begun := time.Now()
	loaded, err := h.firstLoads(ctx, locks.CampaignIDs())
	if err != nil {
		h.leaveGroup(ctx, "load", err)
		return
	}
	for i := range loaded {
		c := &loaded[i]
		if meta, err := h.scripts.MetaOf(c); err == nil {
			byID[c.ID].meta = &meta
		}
		h.seconds.Observe(time.Since(begun).Seconds())
		h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", c.ID), slog.Int64("epoch", c.Epoch),
			slog.Int64("claims", 0), slog.Duration("took", time.Since(begun)))
	}
}

// leaveGroup says that the campaigns of a group are loaded by themselves, which tells what is wrong with which.
func (h *Hydrator) leaveGroup(ctx context.Context, what string, err error) {
	h.log.LogAttrs(ctx, slog.LevelWarn, "campaigns could not be loaded together: each is loaded by itself", slog.String("step", what),
		slog.Any("error", err))
}

// firstLoads takes the steps of a load for campaigns whose locks are held, and returns those that take claims then.
func (h *Hydrator) firstLoads(ctx context.Context, ids []string) ([]models.Campaign, error) {
	births, err := h.birthsOf(ctx, ids) // before the rows are read: a stream that breaks later is another one
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	cs, err := h.neverLoaded(ctx, ids)
	if err != nil || len(cs) == 0 {
		return nil, err
	}
	if numbered, err := h.numberFirsts(ctx, cs); err != nil || !numbered {
		return nil, err
	}
	h.steps.At("numbered")
	cs = h.putFirsts(ctx, cs)
	if len(cs) == 0 {
		return nil, nil
	}
	h.steps.At("loaded")
	cs, err = h.confirmFirsts(ctx, cs, births)
	if err != nil || len(cs) == 0 {
		return nil, err
	}
	h.steps.At("confirmed")
	cs, err = h.openFirsts(ctx, cs)
	if err == nil {
		h.steps.At("opened")
	}
	return cs, err
}

// birthsOf are the generations of the streams of some campaigns, by partition.
func (h *Hydrator) birthsOf(ctx context.Context, ids []string) (map[int]string, error) {
	births := make(map[int]string)
	for _, id := range ids {
		p := lua.PartitionOf(id, h.scripts.Partitions())
		if _, known := births[p]; known {
			continue
		}
		seen, err := h.streams.shared(ctx, p)
		if err != nil {
			return nil, err
		}
		births[p] = seen.stream.Generation
	}
	return births, nil
}

// neverLoaded reads those of some campaigns that may be loaded as blank ones, all by one statement.
func (h *Hydrator) neverLoaded(ctx context.Context, ids []string) (cs []models.Campaign, err error) {
	err = h.db.WithContext(ctx).Where("id IN ? AND kind <> ? AND shards = 1 AND "+neverLoaded+" AND "+withoutClaims, ids, models.KindPacket).
		Find(&cs).Error
	if err != nil {
		return nil, fmt.Errorf("residency: first loads: %w", err)
	}
	return slices.DeleteFunc(cs, func(c models.Campaign) bool {
		_, err := h.scripts.MetaOf(&c)
		return err != nil || c.Partition != lua.PartitionOf(c.ID, h.scripts.Partitions())
	}), nil
}

// numberFirsts hands out the number of the first load of each campaign. numbered is false when one of them, and no one can tell which,
// was handed out to another.
func (h *Hydrator) numberFirsts(ctx context.Context, cs []models.Campaign) (numbered bool, err error) {
	err = sqlstore.Retry(ctx, func() error {
		changed, err := sqlstore.On(h.db.WithContext(ctx)).Exec(
			"UPDATE lots SET load_attempts = ? WHERE id IN ? AND "+neverLoaded, firstNumber, idsOf(cs))
		numbered = changed == int64(len(cs))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("residency: first loads: %w", err)
	}
	return numbered, nil
}

// putFirsts puts campaigns into Redis that take no claims yet, and returns those that it put there.
func (h *Hydrator) putFirsts(ctx context.Context, cs []models.Campaign) (put []models.Campaign) {
	held := slices.Clone(cs)
	for i := range held {
		held[i].Epoch = firstNumber
		held[i].Version = 0
		held[i].Status = models.StatusLoading
	}
	loaded, errs := h.scripts.LoadAll(ctx, held)
	for i := range cs {
		if errs[i] == nil && loaded[i] {
			put = append(put, cs[i])
		}
	}
	return put
}

// confirmFirsts has MySQL know the loads, as confirm does, and returns the campaigns of those as they are now: a change that came before
// is among what is read, and one that comes later finds the campaign in Redis. No other loader may have got a number since.
func (h *Hydrator) confirmFirsts(ctx context.Context, cs []models.Campaign, births map[int]string) (
	confirmed []models.Campaign, err error,
) {
	ids := idsOf(cs)
	for p, birth := range births {
		if err := sqlstore.On(h.db.WithContext(ctx)).Run("UPDATE lots SET epoch = ?, residency = ?, residency_reason = '', residency_at = ?,"+
			" stream_birth = ? WHERE id IN ? AND `partition` = ? AND epoch = 0 AND residency = ? AND load_attempts = ? AND "+withoutCounts,
			firstNumber, models.ResidencyResident, sqlstore.Now(), birth, ids, p, models.ResidencyNone, firstNumber); err != nil {
			return nil, fmt.Errorf("residency: first loads: %w", err)
		}
	}
	err = h.db.WithContext(ctx).Where("id IN ? AND epoch = ? AND residency = ?", ids, firstNumber, models.ResidencyResident).
		Find(&confirmed).Error
	if err != nil {
		return nil, fmt.Errorf("residency: first loads: %w", err)
	}
	return confirmed, nil
}

// openFirsts brings Redis the definitions, and with them the status that takes claims, as Applier.Apply does.
func (h *Hydrator) openFirsts(ctx context.Context, cs []models.Campaign) (opened []models.Campaign, err error) {
	byVersion := make(map[int64][]models.Campaign)
	for i, err := range h.scripts.AdjustAll(ctx, cs) {
		if err == nil {
			byVersion[cs[i].Version] = append(byVersion[cs[i].Version], cs[i])
		}
	}
	h.steps.At("adjusted")
	for version, some := range byVersion {
		if err := campaigns.RecordApplied(ctx, h.db, idsOf(some), version); err != nil {
			return opened, err
		}
		opened = append(opened, some...)
	}
	return opened, nil
}

func idsOf(cs []models.Campaign) []string {
	ids := make([]string, len(cs))
	for i := range cs {
		ids[i] = cs[i].ID
	}
	return ids
}
