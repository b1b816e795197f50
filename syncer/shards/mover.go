package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// ErrBlocked says that the units that are asked for may lie in a lot that does not answer, or that others take them too fast: nothing
// can be said.
var ErrBlocked = errors.New("shards: nothing can be said of the units that are asked for")

// errGone stands for a lot that was not loaded.
var errGone = errors.New("shards: a lot that can't be loaded")

const (
	// maxSteps bounds the steps for one need, while others take the units.
	maxSteps = 200
	// viewTimeout bounds a snapshot of all lots. The units of one whose server hangs are out of reach until it fails over.
	viewTimeout = 500 * time.Millisecond
	// slowDebit is half of the time that a claim is held.
	slowDebit = 100 * time.Millisecond
)

// redis is the part of lua.Scripts that moves need.
type redis interface {
	Shards(ctx context.Context, ids []string) []lua.ShardView
	Servers(ctx context.Context, ids []string) (runs []string, err error)
	Debit(ctx context.Context, c *models.Campaign, d *lua.Debit) (lua.Transferred, error)
	Credit(ctx context.Context, c *models.Campaign, d *lua.Credit) (lua.Transferred, error)
	Debited(ctx context.Context, lotID string, epoch int64, peer int, from int64) ([]string, error)
}

// Loader loads a lot into Redis when that is safe.
type Loader interface {
	Hydrate(ctx context.Context, id string) (lua.Meta, error)
}

// Mover moves units. Any number of movers may work on a campaign at once, in any processes.
type Mover struct {
	db        *gorm.DB
	redis     redis
	loader    Loader
	log       *slog.Logger
	steps     steps.Steps
	metrics   *metrics
	campaigns sync.Map // *campaign by id

	find     func(ctx context.Context, id string, shard int) (*models.Campaign, error) // is lookUp, but in tests
	oneByOne bool                                                                      // in tests: steps are not taken at the same time

	proof func(ctx context.Context, p *snapshot) (models.Refill, error) // is prove, but in tests

	inTransit map[pair]transit // at the last check; for Check alone
}

// campaign is what a mover knows of a campaign of several shards.
type campaign struct {
	turn  chan struct{} // holds a token while a need is served: two would gather what the other has just granted
	fixed atomic.Pointer[models.Campaign]
	// isSlow says that the last debit that had to be on a disk took longer than slowDebit.
	isSlow atomic.Bool

	mu         sync.Mutex
	verifyNext time.Time         // of all lots
	mysqlNext  time.Time         // MySQL is not asked before
	runs       map[string]string // of the servers that lots were verified on, by lot
}

// New makes a mover. reg has its metrics, unless it is nil.
func New(db *gorm.DB, scripts *lua.Scripts, loader Loader, log *slog.Logger, reg prometheus.Registerer) *Mover {
	m := &Mover{db: db, redis: scripts, loader: loader, log: log, metrics: newMetrics(reg)}
	m.proof = m.prove
	m.find = func(ctx context.Context, id string, shard int) (*models.Campaign, error) {
		state, err := scripts.State(ctx, models.ShardID(id, shard)) // without MySQL
		if err == nil {
			return &models.Campaign{ID: id, Kind: state.Meta.Kind, Shards: state.Meta.Shards}, nil
		}
		c, err := campaigns.Read(db.WithContext(ctx), id)
		return &c, err
	}
	return m
}

// Refill brings units to a shard of a campaign, or to its reserve, unless that takes longer than anybody waits. Errors: models.ErrNotFound,
// ErrBlocked, and those of a Redis or MySQL that is away.
func (m *Mover) Refill(ctx context.Context, campaignID string, need models.Need) (models.Refill, error) {
	began := time.Now()
	one := m.campaign(campaignID)
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return models.Refill{}, fmt.Errorf("shards: %s: %w", campaignID, context.Cause(ctx))
	}
	gone := make(map[int]error) // why lots can't be loaded, by their places
	isDry := false
	for range maxSteps {
		if need.Within > 0 && time.Since(began) > need.Within {
			return models.Refill{}, nil
		}
		p, err := m.snapshot(ctx, campaignID, need.Shard, gone)
		if err != nil {
			return models.Refill{}, err
		}
		p.isDry = isDry
		switch s := plan(p, need); s.verb {
		case verbEnough:
			return models.Refill{}, nil
		case verbProve:
			if no, err := m.proof(ctx, p); err != nil || no.SoldOutFrom > 0 && need.Units >= no.SoldOutFrom {
				return no, err
			}
		case verbBlocked:
			return models.Refill{}, errors.Join(fmt.Errorf("%w: %s", ErrBlocked, campaignID), errors.Join(slices.Collect(maps.Values(gone))...))
		case verbLoad:
			if _, err := m.loader.Hydrate(ctx, p.lot(s.to).ID); err != nil {
				gone[s.to] = fmt.Errorf("%w: %w", errGone, err)
			}
		default:
			if err := m.doAll(ctx, p, p.with(s, need)); err != nil {
				return models.Refill{}, err
			}
		}
		isDry = p.isDry
	}
	return models.Refill{}, fmt.Errorf("%w: others take the units of %s", ErrBlocked, campaignID)
}

func (m *Mover) campaign(id string) *campaign {
	one, isKnown := m.campaigns.Load(id)
	if !isKnown {
		one, _ = m.campaigns.LoadOrStore(id, &campaign{turn: make(chan struct{}, 1)})
	}
	return one.(*campaign) //nolint:forcetypeassert // nothing else is stored
}

// known is what is known of a campaign that has a shard of that number.
func (m *Mover) known(ctx context.Context, campaignID string, shard int) (*campaign, *models.Campaign, error) {
	one := m.campaign(campaignID)
	c := one.fixed.Load()
	if c == nil {
		found, err := m.find(ctx, campaignID, shard)
		if err != nil {
			return nil, nil, err
		}
		c = found
		one.fixed.Store(c)
	}
	if !c.IsSharded() || shard > c.Shards && shard != models.ReserveLot {
		return nil, nil, fmt.Errorf("shards: %w: shard %d of %s", models.ErrNotFound, shard, campaignID)
	}
	return one, c, nil
}

// snapshot makes a snapshot of a campaign that has a shard of that number, once its lots are verified.
func (m *Mover) snapshot(ctx context.Context, campaignID string, shard int, gone map[int]error) (*snapshot, error) {
	one, c, err := m.known(ctx, campaignID, shard)
	if err != nil {
		return nil, err
	}
	if err := m.verifyAll(ctx, one, c); err != nil {
		return nil, err
	}
	p := &snapshot{campaign: c, views: m.view(ctx, c), isSlow: one.isSlow.Load()}
	for at, err := range gone {
		if errors.Is(p.views[at].Err, lua.ErrAbsent) || errors.Is(p.views[at].Err, lua.ErrDamaged) {
			p.views[at].Err = err
		}
	}
	return p, nil
}

func (m *Mover) view(ctx context.Context, c *models.Campaign) []lua.ShardView {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	return m.redis.Shards(ctx, c.LotIDs())
}

const (
	// verifyEvery bounds for how long a server that was started again, or took over, is taken for the one before.
	verifyEvery = 100 * time.Millisecond
	// verifyRetry is for how long a MySQL that does not answer is not asked again.
	verifyRetry = time.Second
)

// Verify compares a lot with MySQL if another server holds it than when that was last done, or if the server was started again since: it
// may have been rolled back behind debits. A lot that was rolled back is fenced and loaded. It reports whether the lot is known to be as
// MySQL knows it.
func (m *Mover) Verify(ctx context.Context, lotID string) (verified bool, err error) {
	campaignID, shard := models.SplitShardID(lotID)
	one, c, err := m.known(ctx, campaignID, shard)
	if err != nil {
		return false, err
	}
	return m.verify(ctx, one, c, []string{lotID})
}

// verifyAll verifies all lots of a campaign now and then. Without MySQL moves go on.
func (m *Mover) verifyAll(ctx context.Context, one *campaign, c *models.Campaign) error {
	one.mu.Lock()
	isDue := m.db != nil && time.Now().After(one.verifyNext)
	if isDue {
		one.verifyNext = time.Now().Add(verifyEvery)
	}
	one.mu.Unlock()
	if !isDue {
		return nil
	}
	_, err := m.verify(ctx, one, c, c.LotIDs())
	return err
}

func (m *Mover) verify(ctx context.Context, one *campaign, c *models.Campaign, ids []string) (verified bool, err error) {
	asking, cancel := context.WithTimeout(ctx, viewTimeout)
	runs, awayErr := m.redis.Servers(asking, ids) // "" of those that do not answer
	cancel()
	one.mu.Lock()
	defer one.mu.Unlock()
	isNew := false
	for i, id := range ids {
		run, isKnown := one.runs[id]
		isNew = isNew || (!isKnown || run != runs[i]) && (runs[i] != "" || awayErr == nil)
	}
	if !isNew || time.Now().Before(one.mysqlNext) {
		return !isNew && awayErr == nil, nil
	}
	views := m.view(ctx, c)
	asking, cancel = context.WithTimeout(ctx, viewTimeout)
	rows, err := campaigns.ReadLots(m.db.WithContext(asking), c.ID)
	cancel()
	if err != nil || len(rows) != len(views) {
		one.mysqlNext = time.Now().Add(verifyRetry)
		return false, nil // without MySQL claims and moves go on
	}
	if _, err := m.loadBehind(ctx, views, rows); err != nil {
		return false, err
	}
	if one.runs == nil {
		one.runs = make(map[string]string)
	}
	for i, id := range ids {
		if runs[i] != "" || awayErr == nil {
			one.runs[id] = runs[i]
		}
	}
	return awayErr == nil, nil
}

// loadBehind loads the lots that Redis was rolled back with: it has fewer claims, debits or credits of them than MySQL. It returns how
// many.
func (m *Mover) loadBehind(ctx context.Context, views []lua.ShardView, rows []models.Campaign) (loaded int, err error) {
	for i := range views {
		known := campaigns.Known(&rows[i])
		if views[i].Err != nil || !views[i].Before(known) {
			continue
		}
		again := m.redis.Shards(ctx, []string{rows[i].ID})[0] // rows were read later
		if again.Err != nil || !again.Before(known) {
			continue
		}
		loaded++
		if _, err := m.loader.Hydrate(ctx, rows[i].ID); err != nil && !errors.Is(err, campaigns.ErrLost) {
			return loaded, err
		}
	}
	return loaded, nil
}

// doAll takes steps in different lots at once: each may wait for seconds until it is on a disk.
func (m *Mover) doAll(ctx context.Context, p *snapshot, all []step) error {
	var g errgroup.Group
	moves := make([]moved, len(all))
	for i, s := range all {
		move := func() (err error) {
			moves[i], err = m.move(ctx, p, s)
			return err
		}
		if m.oneByOne {
			if err := move(); err != nil {
				return err
			}
			continue
		}
		g.Go(move)
	}
	err := g.Wait()
	for i, s := range all {
		hasNone := s.units > 0 && moves[i].isAnswered && moves[i].units == 0
		switch {
		case p.number(s.to) == models.ReserveLot && moves[i].units > 0:
			p.isDry = false
		case p.number(s.from) == models.ReserveLot && p.campaign.Kind == models.KindPacket && hasNone:
			p.isDry = true
		}
	}
	return err //nolint:wrapcheck // move wraps it
}

// moved is what came of a move.
type moved struct {
	units      int64 // that were debited
	isAnswered bool  // the giver was as it was seen
}

// move takes units from one lot to another, and ends what is in flight between the two. What others changed since the snapshot was made is
// no error: the next one shows it.
func (m *Mover) move(ctx context.Context, p *snapshot, s step) (moved, error) {
	giver := &p.views[s.from]
	units := s.units
	if p.campaign.Kind == models.KindPacket {
		units = min(units, lua.PushMax)
	}
	d := &lua.Debit{
		Epoch: giver.Epoch, Peer: p.number(s.to), Seen: giver.Out[p.number(s.to)], Units: units, Floors: p.floors(s.from),
		NeedNotWait: p.number(s.from) == models.ReserveLot && p.campaign.Kind != models.KindPacket,
	}
	m.steps.At("planned")
	began := time.Now()
	debited, err := m.redis.Debit(ctx, p.lot(s.from), d)
	if err != nil {
		return moved{}, lookAgain(err)
	}
	if !d.NeedNotWait {
		m.campaign(p.campaign.ID).isSlow.Store(time.Since(began) > slowDebit)
	}
	m.steps.At("debited")
	err = m.credit(ctx, p, s, debited.Upto)
	if err == nil {
		m.steps.At("credited")
		m.count(s.from, s.to, p, debited.Units)
	}
	return moved{units: debited.Units, isAnswered: true}, err
}

// credit brings a lot what another has debited for it. The debit may have waited for seconds: lots that were evicted in the meantime, or
// rolled back, are loaded.
func (m *Mover) credit(ctx context.Context, p *snapshot, s step, upto int64) error {
	err := m.creditOnce(ctx, p, s, &p.views[s.from], &p.views[s.to], upto)
	isCause := func(one error) bool { return errors.Is(err, one) }
	if !slices.ContainsFunc([]error{lua.ErrAbsent, lua.ErrOther, lua.ErrBehind, lua.ErrPeer}, isCause) {
		return err
	}
	ids := []string{p.lot(s.from).ID, p.lot(s.to).ID}
	for _, id := range ids {
		if _, err := m.loader.Hydrate(ctx, id); err != nil {
			if errors.Is(err, campaigns.ErrLost) {
				return nil
			}
			return err
		}
	}
	views := m.redis.Shards(ctx, ids)
	if err := cmp.Or(views[0].Err, views[1].Err); err != nil {
		return lookAgain(err)
	}
	return lookAgain(m.creditOnce(ctx, p, s, &views[0], &views[1], upto))
}

func (m *Mover) creditOnce(ctx context.Context, p *snapshot, s step, giver, taker *lua.ShardView, upto int64) error {
	c := &lua.Credit{
		Seen: taker.Position, Peer: p.number(s.from), PeerLoad: giver.Epoch, Before: taker.In[p.number(s.from)], Upto: upto,
	}
	if upto <= c.Before {
		return nil
	}
	if p.campaign.Kind == models.KindPacket {
		packets, err := m.redis.Debited(ctx, p.lot(s.from).ID, giver.Epoch, p.number(s.to), c.Before)
		if err != nil {
			return err
		}
		if int64(len(packets)) < upto-c.Before {
			return lua.ErrAbsent // the list went with the giver
		}
		c.Packets = packets[:upto-c.Before]
	}
	_, err := m.redis.Credit(ctx, p.lot(s.to), c)
	return err
}

// floors is what each lot was credited from one.
func (p *snapshot) floors(from int) map[int]int64 {
	floors := make(map[int]int64)
	for at := range p.views {
		if n := p.views[at].In[p.number(from)]; n > 0 && !isAway(p.views[at].Err) {
			floors[p.number(at)] = n
		}
	}
	return floors
}

// lookAgain is the error of a call but for those that the next snapshot explains.
func lookAgain(err error) error {
	for _, one := range []error{lua.ErrMovedOn, lua.ErrAbsent, lua.ErrOther, lua.ErrDamaged, lua.ErrPeer} {
		if errors.Is(err, one) {
			return nil
		}
	}
	return err
}

// prove makes two snapshots of a campaign and returns from how many units on a claim was too large at a moment between: more than all lots had. 0
// is not proven: something moved. Packets that are not released count as if they were not there.
//
// Each lot had no more units free at that moment than when it was seen first, because nothing became free in it until it was seen again, by
// the same server; and what it had debited by then was credited before.
func (m *Mover) prove(ctx context.Context, p *snapshot) (no models.Refill, err error) {
	ids := p.campaign.LotIDs()
	servers, err := m.redis.Servers(ctx, ids)
	if err != nil {
		return no, err
	}
	first, err := m.snapshot(ctx, p.campaign.ID, 1, nil)
	if err != nil {
		return no, err
	}
	reserve := len(first.views) - 1
	if first.views[reserve].Free() > 0 && p.campaign.Kind == models.KindPacket {
		if probe, err := m.move(ctx, first, step{verb: verbMove, from: reserve, units: 1}); err != nil || probe.units > 0 || !probe.isAnswered {
			return no, err
		}
		no.NotReleased = true
		first.isDry = true
	}
	second, err := m.snapshot(ctx, p.campaign.ID, 1, nil)
	if err != nil {
		return models.Refill{}, err
	}
	again, err := m.redis.Servers(ctx, ids)
	if err != nil {
		return models.Refill{}, err
	}
	no.SoldOutFrom = 1
	for i := range first.views {
		if !second.views[i].IsSame(&first.views[i]) || servers[i] != again[i] {
			return models.Refill{}, nil
		}
		for j := range first.views {
			if second.views[i].Out[p.number(j)] > first.views[j].In[p.number(i)] {
				return models.Refill{}, nil
			}
		}
		no.SoldOutFrom += first.free(i)
	}
	return no, nil
}

// Lower has the reserve debit units to the campaign's total until these are so many, see campaigns.Gatherer.
func (m *Mover) Lower(ctx context.Context, campaignID string, upto int64) (lowered int64, err error) {
	for range maxSteps {
		p, err := m.snapshot(ctx, campaignID, models.ReserveLot, nil)
		if err != nil {
			return 0, err
		}
		reserve := len(p.views) - 1
		v := &p.views[reserve]
		lack := max(0, upto-v.Out[0])
		if v.Err == nil && v.Free() >= lack {
			d := &lua.Debit{Epoch: v.Epoch, Seen: v.Out[0], Units: lack, Floors: p.floors(reserve)}
			debited, err := m.redis.Debit(ctx, p.lot(reserve), d)
			if err == nil && debited.Upto >= upto {
				return debited.Upto, nil
			}
			if err := lookAgain(err); err != nil {
				return 0, err
			}
			continue
		}
		refill, err := m.Refill(ctx, campaignID, models.Need{Shard: models.ReserveLot, Units: lack})
		if err == nil && refill.SoldOutFrom > 0 {
			err = fmt.Errorf("%w: campaign %s has fewer than %d free", campaigns.ErrTaken, campaignID, lack)
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: claims take units of %s faster than they are gathered", ErrBlocked, campaignID)
}
