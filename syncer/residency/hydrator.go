package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
)

const (
	hydrateTimeout = 2 * time.Minute        // for one hydration, however many wait for it; a million claims take a fraction of it
	proofWait      = 500 * time.Millisecond // a proof waits so long for claims that are on their way into MySQL
	proofPoll      = 10 * time.Millisecond

	loaderPoll, loaderPollMax = 10 * time.Millisecond, 200 * time.Millisecond
	renewEvery                = 5 * time.Second / 3 // a loader renews its time

	maxSteps = 32 // of one run, but for waits
	maxLoads = 8  // at once in a process: each holds a map of the campaign's users
)

var (
	// ErrUnsynced says that the claim stream holds claims that have no rows yet: a rebuild now would lose them.
	ErrUnsynced = errors.New("residency: claims are still on their way into mysql")
)

// Hydrator takes lots into Redis: those that were never there, those that were evicted, and those that Redis lost and that MySQL provably
// has in full. It observes a lot, does what package recovery decides, and goes on until nothing is to be done. Each step has a guard on
// what it relies on, so it may be repeated by any process. A load takes five steps, none of which can lead to a second stock beside
// claims that are on their way:
//
//  1. MySQL hands out the number of this load, and the loader has the campaign to itself for a time that it renews.
//  2. What MySQL holds of the campaign, by one snapshot, is staged in Redis beside what may be there.
//  3. Redis puts it in force in one step, with that number as its epoch and a status that takes no claims.
//  4. MySQL sets epoch and residency, if no claim got a row or was given up since the snapshot. From here on Redis decides, and a
//     campaign that is absent is lost.
//  5. Redis takes the real status and version, if the epoch it holds is MySQL's.
//
// A loader that dies before 3 leaves staged records, which the next loader deletes. Between 3 and 5 the next one goes on, or loads
// again: nothing is claimed before 5. A late loader, whose step 3 finds Redis empty after another load was confirmed, claimed
// from and lost, leaves a copy with a number that MySQL does not have: step 5 never opens it.
type Hydrator struct {
	db           *gorm.DB
	scripts      *lua.Scripts
	log          *slog.Logger
	applier      campaigns.Applier
	streams      streams
	seconds      prometheus.Histogram // of loads
	flights      singleflight.Group
	loads        chan struct{} // holds a token for each load of claims that is under way
	initialLoads initialLoads
	queue        chan string // lots, for the maintainer
	steps        steps.Steps
}

// NewHydrator makes a hydrator; with a nil Registerer it has no metrics.
func NewHydrator(db *gorm.DB, scripts *lua.Scripts, log *slog.Logger, reg prometheus.Registerer) *Hydrator {
	h := &Hydrator{
		db: db, scripts: scripts, log: log, streams: streams{
			db: db, scripts: scripts, log: log, lost: newEntriesLost(reg), observations: new(singleflight.Group),
		},
		seconds: newRebuildSeconds(reg), loads: make(chan struct{}, maxLoads), queue: make(chan string, maxQueued),
	}
	h.applier = campaigns.NewApplier(db, scripts, &h.steps)
	h.initialLoads.h = h
	return h
}

// Reasons that name an effect begin so, or have this in them: who finds the cause puts it in their place, see recordLost.
const mysqlKnowsLoad, notHeld, isFenced = "mysql knows load ", "redis does not hold load ", "redis has fenced load "

// Hydrate loads a campaign into Redis with its newest definition; when Redis holds it already, it sends just the definition. Callers
// that ask for one campaign at the same time share one load, and first loads of different campaigns share their statements. Errors:
// models.ErrNotFound, campaigns.ErrLost, campaigns.ErrPartitions, and those of lua.Scripts.
func (h *Hydrator) Hydrate(ctx context.Context, campaignID string) (lua.Meta, error) {
	flight := h.flights.DoChan(campaignID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hydrateTimeout)
		defer cancel()
		meta, seen := h.initialLoads.load(ctx, campaignID)
		if meta != nil {
			return *meta, nil
		}
		r := h.newRun(recovery.Auto)
		return r.follow(ctx, campaignID, seen, true)
	})
	select {
	case got := <-flight:
		meta, _ := got.Val.(lua.Meta)
		return meta, got.Err
	case <-ctx.Done():
		return lua.Meta{}, fmt.Errorf("residency: hydrate %s: %w", campaignID, context.Cause(ctx))
	}
}

// Recover is Hydrate for a caller that saw more of the campaign in Redis than is there now, and records in MySQL how far it was.
// Errors as Hydrate.
func (h *Hydrator) Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error) {
	if seen != (lua.Position{}) {
		if err := h.Report(ctx, campaignID, seen); err != nil {
			return lua.Meta{}, err
		}
	}
	return h.Hydrate(ctx, campaignID)
}

// Report records in MySQL what a process saw of a campaign in Redis, if it is more than MySQL knows, and what that says of it. Errors as
// Examine.
func (h *Hydrator) Report(ctx context.Context, campaignID string, seen lua.Position) error {
	r := h.newRun(recovery.Auto)
	r.reported = seen
	_, err := r.follow(ctx, campaignID, nil, false)
	return err
}

// Repairer does what an operator's steps need beside a load.
type Repairer interface {
	// Collect adds what the repair knows of a lot to an observation of it.
	Collect(ctx context.Context, l *recovery.Lot) error
	// Do takes a step that restores rows, corrects counters or gives claims up. An error that wraps campaigns.ErrMoved has the lot observed
	// again.
	Do(ctx context.Context, action recovery.Action) error
}

// Repair follows the table of lots by an operator's policy until nothing is to be done, or what is to be done is not within the policy. loaded is the last load that it made, or nil. Errors as Hydrate, and ErrUnsynced: the campaign takes no
// claims, and is loaded as soon as the consumers have caught up.
func (h *Hydrator) Repair(
	ctx context.Context, campaignID string, policy recovery.Policy, repairer Repairer,
) (loaded *LoadReport, err error) {
	r := h.newRun(policy)
	r.repairer = repairer
	_, err = r.follow(ctx, campaignID, nil, true)
	return r.loaded, err
}

// Examine compares a campaign with Redis, and records the eviction or the loss that it finds. It loads nothing. Errors:
// models.ErrNotFound, campaigns.ErrPartitions, and those of lua.Scripts.
func (h *Hydrator) Examine(ctx context.Context, campaignID string) error {
	return h.Report(ctx, campaignID, lua.Position{})
}

// Sound is Examine, and returns what Redis holds of a lot that is sound. Errors also: lua.ErrAbsent of one that is not resident, and
// campaigns.ErrLost.
func (h *Hydrator) Sound(ctx context.Context, id string) (lua.State, error) {
	r := h.newRun(recovery.Auto)
	_, err := r.follow(ctx, id, nil, false)
	switch {
	case err != nil:
		return lua.State{}, err
	case r.last.IsSound():
		return r.last.view.State, nil
	case r.last.MySQL.Residency == models.ResidencyLost:
		return lua.State{}, fmt.Errorf("%w: %s: %s", campaigns.ErrLost, id, r.last.row.ResidencyReason)
	}
	return lua.State{}, fmt.Errorf("%w: %s: it is %s", lua.ErrAbsent, id, r.last.MySQL.Residency)
}

// observeIntact observes a lot of an intact partition.
func (h *Hydrator) observeIntact(ctx context.Context, id string) (*lot, error) {
	all, err := h.observeAll(ctx, id)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("residency: %w: campaign %s", models.ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// observeAll observes lots of partitions that are intact, or that are taken care of first.
func (h *Hydrator) observeAll(ctx context.Context, ids ...string) (all []*lot, err error) {
	for range generationTries {
		all, err = h.observe(ctx, ids...)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(all, func(o *lot) bool { return recovery.PlanPartition(&o.partition).Action != recovery.None })
		if at < 0 {
			return all, nil
		}
		if err := h.streams.shared(ctx, all[at].row.Partition); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: claim streams changed %d times in a row", lua.ErrUnavailable, generationTries)
}

// run is one run of a Hydrator for a lot.
type run struct {
	h        *Hydrator
	policy   recovery.Policy
	repairer Repairer     // nil: no operator asked for it
	reported lua.Position // the caller saw it in Redis
	steps    int          // but waits for other loaders
	pause    time.Duration
	before   recovery.Before
	refused  string // the row that refused the last observation
	last     *lot   // that was observed
	loaded   *LoadReport
}

func (h *Hydrator) newRun(policy recovery.Policy) *run {
	return &run{h: h, policy: policy, pause: loaderPoll}
}

// follow does what package recovery decides for a lot, until nothing is to be done, or all that is left is to load it and it is not to be
// loaded. o is what was observed of it just now, or nil.
func (r *run) follow(ctx context.Context, id string, o *lot, loads bool) (_ lua.Meta, err error) {
	h := r.h
	for r.steps < maxSteps {
		r.steps++
		if o == nil {
			o, err = h.observeIntact(ctx, id)
		}
		if err != nil {
			return lua.Meta{}, err
		}
		r.last = o
		if o.row.IsSharded() { // its shards are loaded, each by itself
			return h.scripts.MetaOf(&o.row.Campaign)
		}
		step, err := r.decide(ctx, o)
		if err != nil {
			return lua.Meta{}, err
		}
		isRecorded, err := r.record(ctx, o, step)
		if !isRecorded && !loads {
			return lua.Meta{}, nil
		}
		if !isRecorded {
			isLoaded, loadErr := r.load(ctx, o, step)
			if isLoaded && loadErr == nil {
				h.steps.At("opened")
				return h.scripts.MetaOf(&o.row.Campaign)
			}
			err = loadErr
		}
		if r.isEnd(err) {
			return lua.Meta{}, err
		}
		o = nil
	}
	return lua.Meta{}, fmt.Errorf("%w: %s: it changed during each of %d steps: try again", lua.ErrUnavailable, id, maxSteps)
}

// isEnd reports whether an error of a step ends the run. The next observation sees the others; only a repair goes on with a lot
// whose rows and counters contradict each other.
func (r *run) isEnd(err error) bool {
	return err != nil && !isMoved(err) && (r.repairer == nil || !errors.Is(err, errContradicts))
}

// isMoved reports whether a step found a lot other than it was observed.
func isMoved(err error) bool {
	return errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrOther) || errors.Is(err, campaigns.ErrMoved)
}

// decide says what is done next. That a lot is lost is recorded at once, as its effect is known.
func (r *run) decide(ctx context.Context, o *lot) (step recovery.Step, err error) {
	o.Reported = r.reported
	o.Before = r.before
	o.policy = r.policy
	r.before = recovery.Before{Epoch: o.Redis.At.Epoch, IsTaking: o.IsTaking()}
	if r.repairer != nil {
		if err := r.repairer.Collect(ctx, &o.Lot); err != nil {
			return step, err
		}
	}
	step = recovery.PlanLot(&o.Lot, r.policy)
	if step.Action == recovery.MarkLost {
		isLost, err := r.h.markLost(ctx, o, o.doubt())
		if err != nil || !isLost {
			return step, err
		}
		step = recovery.PlanLot(&o.Lot, r.policy)
	}
	return step, nil
}

// record takes the steps that load nothing. done is false for another one.
func (r *run) record(ctx context.Context, o *lot, step recovery.Step) (done bool, err error) {
	h := r.h
	switch step.Action { //nolint:exhaustive // see load
	case recovery.ObserveAgain, recovery.MarkLost:
		return true, nil
	case recovery.RecordSeen:
		return true, h.streams.see(ctx, o.row.ID, lua.Position{Epoch: o.MySQL.Epoch, Seq: r.reported.Seq})
	case recovery.RecordEviction:
		return true, recordEviction(ctx, h.db, o.row.ID, o.view.Evicted)
	case recovery.Fence:
		return true, h.fence(ctx, o)
	case recovery.StopPartition:
		return true, h.streams.renew(ctx, &models.StreamRecord{Partition: o.row.Partition, Generation: o.Generation}, o.partition.Recorded,
			"its claim stream ends before the last claims of "+o.row.ID)
	case recovery.CountRows, recovery.RestoreParked, recovery.RestoreStream, recovery.RestoreRecords, recovery.RenumberDisplaced,
		recovery.CorrectCounters, recovery.GiveUpClaims, recovery.GiveUpUnrecorded, recovery.GiveUpParked:
		if r.repairer != nil {
			return true, r.repairer.Do(ctx, step.Action)
		}
	}
	return false, nil
}

// load takes the other steps. done says that nothing is left to do.
func (r *run) load(ctx context.Context, o *lot, step recovery.Step) (done bool, err error) {
	h := r.h
	switch step.Action { //nolint:exhaustive // see record; an operator's steps are refused where no operator asked for them
	case recovery.None:
		return true, nil
	case recovery.Push, recovery.Adjust, recovery.RecordApplied:
		return true, h.applier.Apply(ctx, o.row.ID)
	case recovery.WaitLoader:
		r.steps--
		err := sleep.For(ctx, r.pause)
		r.pause = min(2*r.pause, loaderPollMax)
		return false, wrapped(err, o.row.ID)
	case recovery.WaitConsumers:
		err := h.acknowledged(ctx, o)
		switch {
		case errors.Is(err, ErrUnsynced) && r.repairer != nil:
			err = fmt.Errorf("%w; %s takes no claims now: when the consumers have caught up it comes back by itself if its rows"+
				" add up; else repair it again", err, o.row.ID)
		case errors.Is(err, ErrUnsynced):
			err = fmt.Errorf("%w: %s: %s: %w", campaigns.ErrLost, o.row.ID, o.row.ResidencyReason, err)
		}
		return false, err
	case recovery.Load, recovery.Confirm:
		loaded, err := h.loadOne(ctx, step, o)
		if loaded != nil {
			r.loaded = loaded
		}
		return loaded != nil, err
	}
	if r.refused != step.Row { // MySQL was read before Redis: what it lacked may have come since
		r.refused = step.Row
		return false, nil
	}
	if r.repairer != nil { // who asked for the repair compares what is left
		return true, nil
	}
	return false, fmt.Errorf("%w: %s: %s; only a repair can find what its claims were", campaigns.ErrLost, o.row.ID, o.row.ResidencyReason)
}

// markLost records that Redis lost a lot, which takes no claims any more, and the tip of the claim stream since then. done is false for
// a lot whose load or residency changed.
func (h *Hydrator) markLost(ctx context.Context, o *lot, reason string) (done bool, err error) {
	c := &o.row
	if strings.HasPrefix(reason, campaigns.MySQLRolledBack) || strings.Contains(reason, mysqlKnowsLoad) { // unless it was a replica that lags
		if err := sqlstore.CheckReads(ctx, h.db); err != nil {
			return false, wrapped(err, c.ID)
		}
	}
	tip := o.Generation + " " + o.StreamTip.String()
	seen := c.SeenSeq
	if t := o.Redis.Tombstone; t != nil && o.IsBehindTombstone() { // what was evicted is known to have been answered
		seen = max(seen, t.Seq)
	}
	if c.Residency == models.ResidencyLost {
		reason = c.ResidencyReason
	}
	h.steps.At("fenced")
	changed, err := sqlstore.On(h.db.WithContext(ctx)).Exec("UPDATE lots SET residency = ?, residency_reason = ?, residency_at = ?,"+
		" fence_tip = ?, seen_seq = CASE WHEN seen_seq < ? THEN ? ELSE seen_seq END WHERE id = ? AND epoch = ? AND residency = ?",
		models.ResidencyLost, sqlstore.Cut(reason, models.ReasonLength), sqlstore.Now(), tip, seen, seen, c.ID, c.Epoch, c.Residency)
	if err != nil || changed == 0 {
		return false, wrapped(err, c.ID)
	}
	if c.Residency != models.ResidencyLost {
		h.log.LogAttrs(ctx, slog.LevelError, "campaign lost from redis: it takes no claims until mysql is proven to have all of them, or"+
			" `dibs reconcile --repair` rebuilds it",
			slog.String("campaign_id", c.ID), slog.String("reason", reason), slog.Int64("epoch", c.Epoch), slog.Int64("synced_seq", c.SyncedSeq))
	}
	h.steps.At("lost")
	c.Residency = models.ResidencyLost
	c.ResidencyReason = reason
	c.SeenSeq = seen
	o.MySQL.Residency = c.Residency
	o.MySQL.SeenSeq = seen
	o.MySQL.IsRolledBack = strings.HasPrefix(reason, campaigns.MySQLRolledBack)
	o.setFenceTip(o.StreamTip)
	return true, nil
}

// fence stops claims of whatever Redis holds of a lot. Those that it took until now may be behind the tip that is recorded of a lost one: it
// is forgotten, unless the stream ends before it, which proves a loss.
func (h *Hydrator) fence(ctx context.Context, o *lot) error {
	err := h.scripts.Fence(ctx, o.row.ID, max(o.Redis.At.Epoch, o.row.Epoch))
	if errors.Is(err, lua.ErrDamaged) { // it takes none
		err = nil
	}
	if tip := o.MySQL.FenceTip; err == nil && tip != nil && !o.StreamTip.Less(*tip) {
		err = sqlstore.On(h.db.WithContext(ctx)).Run("UPDATE lots SET fence_tip = '' WHERE id = ?", o.row.ID)
	}
	return wrapped(err, o.row.ID)
}

func wrapped(err error, id string) error {
	if err != nil {
		err = fmt.Errorf("residency: campaign %s: %w", id, err)
	}
	return err
}

// acknowledged waits until MySQL has applied everything up to the fence tip of a lot. Errors: ErrUnsynced.
func (h *Hydrator) acknowledged(ctx context.Context, o *lot) error {
	tip := *o.MySQL.FenceTip
	for until := time.Now().Add(proofWait); ; {
		all, err := h.observe(ctx, o.row.ID)
		switch {
		case err != nil:
			return err
		case len(all) == 1 && all[0].isApplied(tip):
			h.steps.At("acknowledged")
			return nil
		case len(all) == 1 && time.Now().After(until):
			return fmt.Errorf("%w: mysql has applied the claim stream up to %s, it ends at %s", ErrUnsynced, all[0].row.OffsetID, tip)
		}
		if err := sleep.For(ctx, proofPoll); err != nil {
			return wrapped(err, o.row.ID)
		}
	}
}

// IsComplete reports whether MySQL has applied all that the claim stream of a lot holds. Errors as Hydrate.
func (h *Hydrator) IsComplete(ctx context.Context, id string) (bool, error) {
	all, err := h.observe(ctx, id)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("residency: %w: campaign %s", models.ErrNotFound, id)
	}
	return err == nil && all[0].Settled, err
}
