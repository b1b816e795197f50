package lots

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/campaigns"
	"dibs/syncer/offset"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
)

const (
	// of one load, which many may share; a million claims need a fraction.
	loadTimeout = 2 * time.Minute
	tipWait     = 2 * time.Second // for claims on their way into MySQL
	groupWait   = time.Second     // of a group, which continues with the lots that are ready
	renewEvery  = time.Second     // a loader's token is valid three times as long
	busyPause   = 20 * time.Millisecond
	maxLoads    = 4 // with claims, at once in a process: each has a map of users in memory

	// Settle is how long processes may take to report what they saw of
	// a lot: a second, and the pause between two reads of the signals.
	Settle = time.Second + 200*time.Millisecond
)

// ErrAway reports that a lot can't be loaded now. The caller may retry.
var ErrAway = errors.New("lots: it takes no claims now")

// Loader loads lots. It is safe for any number of goroutines and processes.
type Loader struct {
	db      *gorm.DB
	scripts *lua.Scripts
	log     *slog.Logger
	sender  campaigns.Sender
	applied *offset.Streams
	seconds prometheus.Histogram
	flights singleflight.Group
	groups  groups
	loads   chan struct{} // a semaphore: one token per load with claims
	settle  time.Duration // Settle, except with an embedded Redis and in tests
	steps   steps.Steps
}

// New returns a loader; with a nil Registerer it has no metrics.
// settle is Settle, or 0 where no other process can know more.
func New(db *gorm.DB, scripts *lua.Scripts, log *slog.Logger, settle time.Duration, reg prometheus.Registerer) *Loader {
	l := &Loader{
		db: db, scripts: scripts, log: log, applied: offset.NewStreams(db, scripts),
		seconds: newLoadSeconds(reg), loads: make(chan struct{}, maxLoads), settle: settle,
	}
	l.sender = campaigns.NewSender(db, scripts, &l.steps)
	l.groups.load = l.loadGroup
	return l
}

// Load makes a lot live and returns its constant part. Shards are
// loaded one by one. Concurrent calls for one lot share a load; lots
// without claims share statements. Errors: models.ErrNotFound,
// settings.ErrPartitions, ErrAway, and those of lua.Scripts.
func (l *Loader) Load(ctx context.Context, id string) (lua.Meta, error) {
	return l.flight(ctx, id, func(ctx context.Context) (lua.Meta, error) {
		o, err := l.groups.add(ctx, id)
		if err == nil && o == nil {
			o, err = l.loadOne(ctx, id, lua.FenceAway, rand.Text())
		}
		if err != nil {
			return lua.Meta{}, err
		}
		return l.scripts.MetaOf(&o.row.Campaign)
	})
}

// Reload loads a lot even if it is live. Errors as Load.
func (l *Loader) Reload(ctx context.Context, id string) error {
	_, err := l.flight(ctx, "reload "+id, func(ctx context.Context) (lua.Meta, error) {
		_, err := l.loadOne(ctx, id, lua.FenceAny, rand.Text())
		return lua.Meta{}, err
	})
	return err
}

// Recover is Load for a caller that found the lot away, stopped or
// damaged. seen is what it saw of the lot before. A fence checks only a
// few fields of the state, so Recover checks a live lot in full.
func (l *Loader) Recover(ctx context.Context, id string, seen lua.Position) (lua.Meta, error) {
	if seen != (lua.Position{}) {
		if err := l.Report(ctx, map[string]lua.Position{id: seen}); err != nil {
			return lua.Meta{}, err
		}
	}
	meta, err := l.Load(ctx, id)
	if err == nil && l.isDamaged(ctx, meta) {
		err = l.Reload(ctx, id)
	}
	return meta, err
}

func (l *Loader) isDamaged(ctx context.Context, meta lua.Meta) bool {
	state, err := l.scripts.State(ctx, meta.ID)
	if err != nil || meta.Kind != models.KindPacket {
		return errors.Is(err, lua.ErrDamaged)
	}
	packets, err := l.scripts.CountPackets(ctx, meta.ID)
	now, stateErr := l.scripts.State(ctx, meta.ID)
	return err == nil && stateErr == nil && packets != state.Remaining() &&
		now.Position() == state.Position() && now.Pushed == state.Pushed
}

func (l *Loader) flight(ctx context.Context, key string, do func(ctx context.Context) (lua.Meta, error)) (lua.Meta, error) {
	flight := l.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		return do(ctx)
	})
	select {
	case got := <-flight:
		meta, _ := got.Val.(lua.Meta)
		return meta, got.Err
	case <-ctx.Done():
		return lua.Meta{}, fmt.Errorf("%w: load %s: %w", ErrAway, key, context.Cause(ctx))
	}
}

// Signals returns those of the partitions that answer. After a change a
// process reports what it saw.
func (l *Loader) Signals(ctx context.Context) map[int]lua.Signals { return l.scripts.Signals(ctx) }

const reportsAtOnce = 200

// Report records what a process saw of lots,
// by id. Lots without a row are ignored.
func (l *Loader) Report(ctx context.Context, seen map[string]lua.Position) error {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(seen)), reportsAtOnce) {
		err := sqlstore.InTx(ctx, l.db, func(tx *gorm.DB) error {
			for _, id := range some {
				if err := see(ctx, tx, id, seen[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("lots: report what was seen: %w", err)
		}
	}
	return nil
}

func see(ctx context.Context, tx *gorm.DB, id string, at lua.Position) error {
	_, err := sqlstore.Exec(ctx, tx, "UPDATE lots SET"+
		" seen_epoch = CASE WHEN seen_epoch < ? THEN ? ELSE seen_epoch END,"+
		" seen_seq = CASE WHEN seen_seq < ? THEN ? ELSE seen_seq END,"+
		" seen_units = CASE WHEN seen_units < ? THEN ? ELSE seen_units END"+
		" WHERE id = ? AND (seen_epoch < ? OR seen_seq < ? OR seen_units < ?)",
		at.Epoch, at.Epoch, at.Seq, at.Seq, at.Units, at.Units, id, at.Epoch, at.Seq, at.Units)
	return err
}

// loadOne loads a lot by itself. It waits while another loader has the lot.
func (l *Loader) loadOne(ctx context.Context, id, how, token string) (*lot, error) {
	for {
		o, err := l.tryOne(ctx, id, how, token)
		if !errors.Is(err, lua.ErrOther) {
			return o, err
		}
		if err := sleep.For(ctx, busyPause); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrAway, id, err)
		}
	}
}

func (l *Loader) tryOne(ctx context.Context, id, how, token string) (o *lot, err error) {
	started := time.Now()
	all, err := l.fence(ctx, []string{id}, how, token)
	if err != nil {
		return nil, err
	}
	o = all[0]
	if o.isDone || o.err != nil {
		return o, o.err
	}
	l.steps.At("fenced")
	ctx, stop := l.renew(ctx, token, id)
	defer stop()
	if err := l.bring(ctx, o, how, token); err != nil {
		l.scripts.Fence(context.WithoutCancel(ctx), token, lua.FenceLeave, []string{id})
		return nil, err
	}
	l.loaded(ctx, o, time.Since(started))
	return o, nil
}

// fence reads lots, in any order, and fences those that are away. The
// error concerns all of them; each lot has its own as well.
func (l *Loader) fence(ctx context.Context, ids []string, how, token string) ([]*lot, error) {
	all, err := l.read(ctx, ids, "")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("lots: %w: campaign %s", models.ErrNotFound, ids[0])
	}
	var away []*lot
	for _, o := range all {
		switch {
		case o.row.IsSharded():
			o.isDone = true
		case o.row.State != event.PartitionOK:
			o.err = fmt.Errorf("%w: %s: its partition %d is %s", ErrAway, o.row.ID, o.row.Partition, o.row.State)
		case o.row.Untold && o.row.Kind == models.KindPacket:
			// a load stages the packets of the stream
			_, o.err = l.sender.PublishPackets(ctx, &o.row.Campaign)
		}
		if !o.isDone && o.err == nil {
			away = append(away, o)
		}
	}
	fenced, errs := l.scripts.Fence(ctx, token, how, idsOf(away))
	for i, o := range away {
		o.fenced = fenced[i]
		o.err = errs[i]
		o.isDone = o.fenced.Held == lua.HeldLive
	}
	return all, nil
}

// renew renews a token in lots until the returned function is called. The
// context ends if another loader takes one of them.
func (l *Loader) renew(ctx context.Context, token string, ids ...string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep.For(ctx, renewEvery) == nil {
			_, errs := l.scripts.Fence(ctx, token, lua.FenceRenew, ids)
			if err := errors.Join(errs...); errors.Is(err, lua.ErrOther) {
				cancel(err)
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

func (l *Loader) bring(ctx context.Context, o *lot, how, token string) error {
	if err := l.awaitTip(ctx, o); err != nil {
		return err
	}
	now, err := l.number(ctx, []*lot{o}, token)
	if err != nil {
		return err
	}
	if len(now) == 0 {
		return fmt.Errorf("%w: %s", lua.ErrOther, o.row.ID)
	}
	*o = *now[0]
	if o.mayBeKnownBetter() {
		l.steps.At("settling")
		if err := sleep.For(ctx, l.settle); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrAway, o.row.ID, err)
		}
	}
	isResumed, err := l.resume(ctx, o, how, token)
	if err != nil || isResumed {
		return err
	}
	select {
	case l.loads <- struct{}{}:
		defer func() { <-l.loads }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %s: %w", ErrAway, o.row.ID, context.Cause(ctx))
	}
	return l.put(ctx, o, token)
}

// awaitTip waits until MySQL has applied the streams that a load relies on.
func (l *Loader) awaitTip(ctx context.Context, o *lot) error {
	partitions, err := l.partitionsOf(ctx, o)
	if err != nil {
		return err
	}
	if err := l.await(ctx, o.row.ID, partitions); err != nil {
		return err
	}
	l.steps.At("applied")
	return nil
}

func (l *Loader) await(ctx context.Context, id string, partitions []int) error {
	ctx, cancel := context.WithTimeout(ctx, tipWait)
	defer cancel()
	if err := l.applied.AwaitPartitions(ctx, partitions); err != nil {
		return fmt.Errorf("%w: %s: claims are on their way to MySQL: %w", ErrAway, id, err)
	}
	return nil
}

func (l *Loader) partitionsOf(ctx context.Context, o *lot) (partitions []int, err error) {
	if !models.IsShardID(o.row.ID) {
		return []int{o.row.Partition}, nil
	}
	campaignID := models.CampaignIDOf(o.row.ID)
	err = l.db.WithContext(ctx).Raw("SELECT DISTINCT partition_no FROM lots WHERE campaign_id = ? AND shard > 0", campaignID).
		Scan(&partitions).Error
	if err != nil {
		return nil, fmt.Errorf("lots: shards of %s: %w", campaignID, err)
	}
	return partitions, nil
}

// number makes MySQL number loads, and reads the lots again. Lots that
// another loader has numbered since are left out.
func (l *Loader) number(ctx context.Context, lots []*lot, token string) ([]*lot, error) {
	held := int64(0)
	before := make(map[string]*lot, len(lots))
	for _, o := range lots {
		held = max(held, o.fenced.Epoch)
		before[o.row.ID] = o
	}
	err := sqlstore.Retry(ctx, func() error {
		highest := "CASE WHEN load_attempts >= epoch AND load_attempts >= seen_epoch AND load_attempts >= ? THEN load_attempts" +
			" WHEN epoch >= seen_epoch AND epoch >= ? THEN epoch WHEN seen_epoch >= ? THEN seen_epoch ELSE ? END"
		return l.db.WithContext(ctx).Exec("UPDATE lots SET load_attempts = 1 + "+highest+", loader = ? WHERE id IN ?",
			held, held, held, held, token, idsOf(lots)).Error
	})
	if err != nil {
		return nil, fmt.Errorf("lots: number the load of %s: %w", idsOf(lots), err)
	}
	l.steps.At("numbered")
	all, err := l.read(ctx, idsOf(lots), token)
	if err != nil {
		return nil, err
	}
	definitions, err := campaigns.ReadDefinitions(l.db.WithContext(ctx), idsOf(all))
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		o.fenced = before[o.row.ID].fenced
		o.definition = definitions[o.row.ID]
	}
	return all, nil
}

// mayBeKnownBetter reports whether a process may have seen more of a lot than
// MySQL has. Then Redis lost the lot, but nothing that MySQL has.
func (o *lot) mayBeKnownBetter() bool {
	switch o.fenced.Held {
	case lua.HeldStopped, lua.HeldDamaged:
		return true
	case lua.HeldOlder: // processes reported before the new generation
		return false
	default:
		isLost := o.row.Residency == models.ResidencyResident && o.row.Generation == o.row.PartitionGeneration
		return isLost || o.row.SeenEpoch > o.row.Epoch // it was live; MySQL has yet to apply that
	}
}

// resume continues a stopped lot after what was seen, if MySQL has all else.
func (l *Loader) resume(ctx context.Context, o *lot, how, token string) (done bool, err error) {
	if how != lua.FenceAway || o.fenced.Held != lua.HeldStopped ||
		o.row.ReloadUpto >= o.fenced.Epoch || o.row.IsProven {
		return false, nil
	}
	var known counted
	err = sqlstore.InSnapshot(ctx, l.db, func(tx *gorm.DB) error {
		known, err = l.known(ctx, tx, o, token)
		return err
	})
	if err != nil {
		return false, err
	}
	if o.fenced.Units != known.units+o.row.LostUnits+o.row.GivenUpUnits || o.fenced.Epoch != o.row.Epoch {
		return false, nil
	}
	known.highest = o.fenced.Seq
	load := o.loadOf(&known, token)
	load.Sold = max(load.Sold, o.fenced.Units)
	err = l.scripts.Resume(ctx, load)
	l.steps.At("resumed")
	return err == nil, err
}

func (l *Loader) loaded(ctx context.Context, o *lot, took time.Duration) {
	l.seconds.Observe(took.Seconds())
	l.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", o.row.ID),
		slog.Int64("epoch", o.row.LoadAttempts), slog.Int64("units", o.row.Sold), slog.Duration("took", took))
	l.follow(ctx, []*lot{o})
}

// follow sends Redis the definitions that
// changed during a load. The leader retries.
func (l *Loader) follow(ctx context.Context, lots []*lot) {
	var versions []struct {
		ID      string
		Version int64
	}
	err := l.db.WithContext(ctx).Raw("SELECT id, version FROM defined_lots WHERE id IN ?", idsOf(lots)).
		Scan(&versions).Error
	for _, now := range versions {
		at := slices.IndexFunc(lots, func(o *lot) bool { return o.row.ID == now.ID })
		if at >= 0 && lots[at].row.Version != now.Version {
			err = errors.Join(err, l.sender.Send(ctx, now.ID))
		}
	}
	if err != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "a change of a campaign during its load follows later", slog.Any("error", err))
	}
}

func idsOf(lots []*lot) []string {
	return sqlstore.Keys(lots, func(o **lot) string { return (*o).row.ID })
}
