package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/offset"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// ErrBlocked reports that the stock is unknown: a shard does not
// answer, or others take the units too fast.
var ErrBlocked = errors.New("shards: nothing can be said of the units that are asked for")

const (
	// maxSteps bounds the steps of one need, while others take the units.
	maxSteps = 50
	// viewTimeout bounds a snapshot of all shards. Units on a stalled
	// server are unreachable until it fails over.
	viewTimeout = 500 * time.Millisecond
	// appliedTimeout is how long a move waits for MySQL to apply its
	// debit. After that the leader completes it.
	appliedTimeout = 2 * time.Second
)

// Loader loads lots into Redis, see lots.Loader.
type Loader interface {
	Load(ctx context.Context, id string) (lua.Meta, error)
	Reload(ctx context.Context, id string) error
}

// Mover moves units. Any number of movers,
// in any processes, may serve a campaign.
type Mover struct {
	db      *gorm.DB
	scripts *lua.Scripts
	applied *offset.Streams
	loader  Loader
	steps   steps.Steps
	metrics *metrics
	needs   sync.Map // *needLock by lot
}

// needLock serializes the needs of a shard:
// two at once would move the units twice.
type needLock struct {
	token chan struct{} // a semaphore of one
	late  bool          // the last move may be incomplete
	moved bool          // this need got units, but too few
}

// New returns a mover, without metrics if reg is nil.
func New(db *gorm.DB, scripts *lua.Scripts, loader Loader, reg prometheus.Registerer) *Mover {
	applied := offset.NewStreams(db, scripts)
	return &Mover{db: db, scripts: scripts, applied: applied, loader: loader, metrics: newMetrics(reg)}
}

// Refill moves units to a shard of a campaign, unless that takes longer
// than a claim waits. Errors: ErrBlocked, and those of Redis or MySQL.
func (m *Mover) Refill(ctx context.Context, campaignID string, need models.Need) (models.Refill, error) {
	started := time.Now()
	t, err := m.enter(ctx, models.ShardID(campaignID, need.Shard))
	if err != nil {
		return models.Refill{}, err
	}
	defer func() { <-t.token }()
	for range maxSteps {
		if need.Within > 0 && time.Since(started) > need.Within {
			return models.Refill{}, nil
		}
		done, refill, err := m.step(ctx, campaignID, need, t)
		if done || err != nil {
			return refill, err
		}
	}
	return models.Refill{}, fmt.Errorf("%w: others take the units of %s", ErrBlocked, campaignID)
}

// enter locks the needs of a shard in this process.
func (m *Mover) enter(ctx context.Context, id string) (*needLock, error) {
	found, _ := m.needs.LoadOrStore(id, &needLock{token: make(chan struct{}, 1)})
	t := found.(*needLock) //nolint:forcetypeassert // nothing else is stored
	select {
	case t.token <- struct{}{}:
		t.moved = false
		return t, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("shards: %s: %w", id, context.Cause(ctx))
	}
}

// step does the next step for a need. done reports that the shard has
// the units, or that they are proven not to exist.
func (m *Mover) step(
	ctx context.Context, campaignID string, need models.Need, t *needLock,
) (done bool, refill models.Refill, err error) {
	p := m.snapshot(ctx, campaignID, need.Shards)
	taker := &p.views[need.Shard-1]
	if taker.Err == nil && p.lack(need) <= 0 {
		return true, refill, nil
	}
	moves := p.moves(need)
	switch {
	case t.late: // else each need would drain the other shards further
		err = m.Finish(ctx, campaignID)
		t.late = err != nil
		return false, refill, err
	case isAway(taker.Err):
		return true, refill, fmt.Errorf("%w: %w", ErrBlocked, taker.Err)
	case taker.Err != nil:
		return false, refill, m.load(ctx, p.ids[need.Shard-1])
	case len(moves) > 0 && t.moved && need.Shard < moves[0].from: // else two shards could swap units for ever
		t.moved = false
		return false, refill, sleep.For(ctx, models.PaceSpan)
	case len(moves) > 0:
		err = m.move(ctx, p, moves)
		t.late = err != nil
		t.moved = true
		return need.Ahead, refill, err
	case need.Ahead:
		return true, refill, nil
	}
	if loads := p.absent(); len(loads) > 0 {
		return false, refill, m.load(ctx, loads...)
	}
	if away := p.away(); away != nil {
		return true, refill, fmt.Errorf("%w: %s: %w", ErrBlocked, campaignID, away)
	}
	if p.out() != p.in() {
		return false, refill, m.Finish(ctx, campaignID)
	}
	refill.SoldOutFrom, err = m.prove(ctx, p)
	return refill.SoldOutFrom > 0 && need.Units >= refill.SoldOutFrom, refill, err
}

func wrapped(err error) error {
	if err != nil {
		err = fmt.Errorf("shards: %w", err)
	}
	return err
}

func (m *Mover) load(ctx context.Context, ids ...string) error {
	var loads errgroup.Group
	for _, id := range ids {
		loads.Go(func() error {
			_, err := m.loader.Load(ctx, id)
			return wrapped(err)
		})
	}
	return loads.Wait() //nolint:wrapcheck // wrapped
}

// prove takes a second snapshot. It returns the size from which on a
// claim was too large at a moment between the two; 0 is not proven.
//
// At that moment each shard had at most the free units of the first
// snapshot, as none were freed before the second. Nothing was on its
// way, and no raise was pending: that is ErrBlocked.
func (m *Mover) prove(ctx context.Context, first *snapshot) (soldOutFrom int64, err error) {
	units, err := campaigns.Excess(m.db.WithContext(ctx), first.campaignID, campaigns.BetweenShards)
	if err == nil && units[first.campaignID] < 0 {
		err = fmt.Errorf("%w: the total of %s is being raised", ErrBlocked, first.campaignID)
	}
	if err != nil {
		return 0, err
	}
	second := m.snapshot(ctx, first.campaignID, len(first.ids))
	if second.out() != first.in() {
		return 0, nil
	}
	free := int64(0) // of the campaign; a shard in debt has to be filled first
	for i := range first.views {
		if !second.views[i].IsSame(&first.views[i]) {
			return 0, nil
		}
		free += first.views[i].Free() - first.views[i].Lacks()
	}
	return 1 + max(0, free), nil
}

// move debits units, waits until MySQL has applied that, and credits them. A
// change since the snapshot is no error: the next snapshot has it.
func (m *Mover) move(ctx context.Context, p *snapshot, moves []move) error {
	started := time.Now()
	givers := make([]int, len(moves))
	for i := range moves {
		givers[i] = moves[i].from
	}
	partitions, err := m.partitions(ctx, p.campaignID, givers...) // no debit without MySQL
	if err != nil {
		return err
	}
	m.steps.At("debiting")
	var ids []string
	for i := range moves {
		id, units, err := m.debit(ctx, p, &moves[i])
		if err != nil {
			return err
		}
		if units > 0 {
			ids = append(ids, id)
			m.count(moves[i].to, units)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	m.steps.At("debited")
	if err := m.awaitApplied(ctx, partitions); err != nil {
		return err
	}
	if err := m.credit(ctx, p.campaignID, ids...); err != nil {
		return err
	}
	m.metrics.seconds.Observe(time.Since(started).Seconds())
	return nil
}

func (m *Mover) debit(ctx context.Context, p *snapshot, s *move) (string, int64, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", 0, wrapped(err)
	}
	units, err := m.scripts.Debit(ctx, &lua.Debit{
		Move: id.String(), Shard: p.ids[s.from-1], Epoch: p.views[s.from-1].Epoch, To: s.to, Units: s.units, Taken: s.taken,
	})
	if isOther(err) {
		err = nil // the next snapshot has it
	}
	return id.String(), units, err
}

// isOther reports whether Redis has another
// load of a shard than the snapshot.
func isOther(err error) bool {
	return errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrOther) || errors.Is(err, lua.ErrDamaged)
}

// Finish waits until MySQL has applied the
// debits of a campaign, and credits them.
func (m *Mover) Finish(ctx context.Context, campaignID string) error {
	if err := m.await(ctx, campaignID); err != nil {
		return err
	}
	return m.credit(ctx, campaignID)
}

func (m *Mover) await(ctx context.Context, campaignID string) error {
	partitions, err := m.partitions(ctx, campaignID)
	if err != nil {
		return err
	}
	return m.awaitApplied(ctx, partitions)
}

// partitions returns those of some shards
// of a campaign; without shards, of all.
func (m *Mover) partitions(ctx context.Context, campaignID string, shards ...int) (partitions []int, err error) {
	query := m.db.WithContext(ctx).Table("lots").Where("campaign_id = ? AND shard > 0", campaignID)
	if len(shards) > 0 {
		query = query.Where("shard IN ?", shards)
	}
	err = query.Distinct().Pluck("partition_no", &partitions).Error
	return partitions, wrapped(err)
}

func (m *Mover) awaitApplied(ctx context.Context, partitions []int) error {
	ctx, cancel := context.WithTimeout(ctx, appliedTimeout)
	defer cancel()
	m.steps.At("waiting")
	err := m.applied.AwaitPartitions(ctx, partitions)
	m.steps.At("applied")
	return err
}

// credit credits some open moves of a campaign, or all, and tries again if it
// had to load a taker. MySQL must have applied the takers' streams, too. Else
// an old credit that a restored MySQL has yet to read would count twice.
func (m *Mover) credit(ctx context.Context, campaignID string, moves ...string) error {
	isLoaded, err := m.tryCredit(ctx, campaignID, moves)
	if err == nil && isLoaded {
		_, err = m.tryCredit(ctx, campaignID, moves)
	}
	m.steps.At("credited")
	return err
}

const creditAtOnce = 1000

func (m *Mover) tryCredit(ctx context.Context, campaignID string, moves []string) (isLoaded bool, err error) {
	var open []struct {
		ID       string
		From, To int
		Units    int64
		Epoch    int64 // MySQL's, of the taker: a newer load may already have the units
	}
	query := m.db.WithContext(ctx).Table("stock_moves m").
		Joins("JOIN lots t ON t.campaign_id = m.campaign_id AND t.shard = m.to_shard").
		Select("m.id, m.from_shard AS `from`, m.to_shard AS `to`, m.units, t.epoch").
		Where("m.credited_at IS NULL AND m.campaign_id = ?", campaignID)
	if len(moves) > 0 {
		query = query.Where("m.id IN ?", moves)
	}
	err = query.Order("m.id").Limit(creditAtOnce).Find(&open).Error
	failed := []error{wrapped(err)}
	for _, o := range open {
		id := models.ShardID(campaignID, o.To)
		credit := &lua.Credit{Move: o.ID, Shard: id, Epoch: o.Epoch, From: o.From, Units: o.Units}
		_, err := m.scripts.Credit(ctx, credit)
		isDamaged := errors.Is(err, lua.ErrDamaged) // its credits may be lost
		if isDamaged || isOther(err) {
			isLoaded = true
			err = m.loadAndAwait(ctx, id, isDamaged)
		}
		failed = append(failed, wrapped(err))
	}
	return isLoaded, errors.Join(failed...)
}

// loadAndAwait loads a shard, and waits until
// MySQL has applied the entry of that load.
func (m *Mover) loadAndAwait(ctx context.Context, id string, again bool) (err error) {
	if again {
		err = m.loader.Reload(ctx, id)
	} else {
		err = m.load(ctx, id)
	}
	if err != nil {
		return err
	}
	return m.awaitApplied(ctx, []int{lua.PartitionOf(id, m.scripts.Partitions())})
}

// snapshot is Redis' state of a campaign's shards, in order.
type snapshot struct {
	campaignID string
	ids        []string
	views      []lua.ShardView
}

func (m *Mover) snapshot(ctx context.Context, campaignID string, shards int) *snapshot {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	c := models.Campaign{ID: campaignID, Shards: shards}
	p := &snapshot{campaignID: campaignID, ids: c.ShardIDs()}
	p.views = m.scripts.Shards(ctx, p.ids)
	return p
}

func (p *snapshot) out() (n int64) {
	for i := range p.views {
		n += p.views[i].Out
	}
	return n
}

func (p *snapshot) in() (n int64) {
	for i := range p.views {
		n += p.views[i].In
	}
	return n
}

// isAway reports whether a shard's state is unknown now.
func isAway(err error) bool {
	return err != nil && !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrDamaged)
}

func (p *snapshot) away() error {
	for i := range p.views {
		if err := p.views[i].Err; isAway(err) {
			return err
		}
	}
	return nil
}

// absent returns the shards that Redis lacks, and that may have units.
func (p *snapshot) absent() (ids []string) {
	for i := range p.views {
		if err := p.views[i].Err; err != nil && !isAway(err) {
			ids = append(ids, p.ids[i])
		}
	}
	return ids
}

type move struct {
	from, to int // 0 is the total
	units    int64
	taken    bool // see lua.Debit
}

func (p *snapshot) lack(need models.Need) int64 {
	taker := &p.views[need.Shard-1]
	return need.Units - taker.Free() + taker.Lacks()
}

// richer is how many times a shard's free units another must have to
// give some away before a claim waits for them.
const richer = 4

// moves returns the moves that serve a need: half of the difference to
// the richest shard, or at least the lack. If no shard has enough,
// several give all they have; it is nil if all together have too few.
func (p *snapshot) moves(need models.Need) (moves []move) {
	lack := p.lack(need)
	var givers []int
	for i := range p.views {
		if i != need.Shard-1 && p.views[i].Err == nil && p.views[i].Free() > 0 {
			givers = append(givers, i)
		}
	}
	if len(givers) == 0 {
		return nil
	}
	slices.SortStableFunc(givers, func(i, j int) int { return cmp.Compare(p.views[j].Free(), p.views[i].Free()) })
	most := p.views[givers[0]].Free()
	has := p.views[need.Shard-1].Free()
	half := (most - has + 1) / 2
	switch {
	case need.Ahead && most < richer*max(1, has):
		return nil
	case need.Ahead: // no claim waits: the giver keeps its half
		return []move{{from: givers[0] + 1, to: need.Shard, units: half}}
	case most >= lack:
		return []move{{from: givers[0] + 1, to: need.Shard, units: max(half, lack)}}
	}
	for _, i := range givers {
		units := min(p.views[i].Free(), lack)
		lack -= units
		moves = append(moves, move{from: i + 1, to: need.Shard, units: units})
		if lack == 0 {
			return moves
		}
	}
	return nil
}
