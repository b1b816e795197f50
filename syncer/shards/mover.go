package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// ErrBlocked says that the units that are asked for may lie in a shard that does not answer, or that others take them too fast: nothing
// can be said.
var ErrBlocked = errors.New("shards: nothing can be said of the units that are asked for")

// errGone stands for a shard that was not loaded.
var errGone = errors.New("shards: a shard that can't be loaded")

const (
	// stepsMost bounds the steps for one need, while others take the units.
	stepsMost = 200
	// viewTimeout bounds a look at all shards. The units of one whose server hangs are out of reach until it fails over.
	viewTimeout = 500 * time.Millisecond
)

// redis is the part of lua.Scripts that moves need.
type redis interface {
	Shards(ctx context.Context, ids []string) []lua.ShardView
	Move(ctx context.Context, c *models.Campaign, m *models.StockMove) (amount int64, err error)
}

// books is what moves need of MySQL.
type books interface {
	// look reads the reserve of a campaign and its shards, as of one moment. It leaves out what is in Redis.
	look(ctx context.Context, campaignID string) (*picture, error)
	// begin opens a move, unless the shard is not as c has it, or the reserve has too few units; then it returns nil.
	begin(ctx context.Context, c *models.Campaign, kind models.MoveKind, units int64) (*models.StockMove, error)
	// open reads the open move of a shard; nil is none.
	open(ctx context.Context, c *models.Campaign) (*models.StockMove, error)
	// finish ends a move of which so many units went. A move that is done stays as it is.
	finish(ctx context.Context, m *models.StockMove, amount int64) error
}

// Loader loads a shard into Redis when that is safe.
type Loader interface {
	Hydrate(ctx context.Context, id string) (lua.Meta, error)
	// Recover is Hydrate of a shard that was seen at a position. It takes a shard out of use if MySQL does not know its moves.
	Recover(ctx context.Context, id string, seen lua.Position) (lua.Meta, error)
}

// Mover moves units. Any number of movers may work on a campaign at once, in any processes.
type Mover struct {
	db      *gorm.DB
	redis   redis
	books   books
	loader  Loader
	log     *slog.Logger
	turns   turns
	steps   steps.Steps
	metrics *metrics

	oneByOne bool // in tests: steps of different shards are not taken at the same time

	proof func(ctx context.Context, campaignID string, before *picture) (models.Refill, error) // is prove, but in tests
}

// New makes a mover. reg has its metrics, unless it is nil.
func New(db *gorm.DB, scripts *lua.Scripts, loader Loader, log *slog.Logger, reg prometheus.Registerer) *Mover {
	m := &Mover{db: db, redis: scripts, loader: loader, log: log, metrics: newMetrics(reg)}
	m.books = &store{db: db, steps: &m.steps}
	m.proof = m.prove
	return m
}

// Refill brings units to a shard of a campaign, or to its reserve, unless that takes longer than anybody waits. Errors: models.ErrNotFound,
// ErrBlocked, and those of a Redis or MySQL that is away.
func (m *Mover) Refill(ctx context.Context, campaignID string, need models.Need) (models.Refill, error) {
	began := time.Now()
	give, err := m.turns.take(ctx, campaignID)
	if err != nil {
		return models.Refill{}, err
	}
	defer give()
	gone := make(map[int]bool) // shards that can't be loaded
	for range stepsMost {
		if need.Within > 0 && time.Since(began) > need.Within {
			return models.Refill{}, nil
		}
		p, err := m.look(ctx, campaignID, gone)
		if err != nil {
			return models.Refill{}, err
		}
		if need.Shard > len(p.views) {
			return models.Refill{}, fmt.Errorf("shards: %w: shard %d of %s", models.ErrNotFound, need.Shard, campaignID)
		}
		switch s := plan(p, need); s.verb {
		case verbEnough:
			return models.Refill{}, nil
		case verbProve:
			if no, err := m.proof(ctx, campaignID, p); err != nil || no.SoldOutFrom > 0 && need.Units >= no.SoldOutFrom {
				return no, err
			}
		case verbBlocked:
			return models.Refill{}, fmt.Errorf("%w: %s", ErrBlocked, campaignID)
		default:
			if err := m.doAll(ctx, p, p.with(s, need), gone); err != nil {
				return models.Refill{}, err
			}
		}
	}
	return models.Refill{}, fmt.Errorf("%w: others take the units of %s", ErrBlocked, campaignID)
}

// look makes a picture.
func (m *Mover) look(ctx context.Context, campaignID string, gone map[int]bool) (p *picture, err error) {
	p, err = m.books.look(ctx, campaignID)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(p.books))
	for i := range ids {
		ids[i] = p.books[i].ID
	}
	asking, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	p.views = m.redis.Shards(asking, ids)
	if err := m.requireMoves(ctx, campaignID, p); err != nil {
		return nil, err
	}
	for shard := range gone {
		if errors.Is(p.views[shard-1].Err, lua.ErrAbsent) {
			p.views[shard-1].Err = errGone
		}
	}
	return p, nil
}

// requireMoves returns ErrBlocked if MySQL was restored to a time before a move of any shard of the campaign, and until that shard is
// repaired: the reserve holds units then that the shard has. A move that MySQL does not know when it is asked after Redis is one that it
// has lost.
func (m *Mover) requireMoves(ctx context.Context, campaignID string, p *picture) error {
	if !p.lacksMoves() {
		return nil
	}
	now, err := m.books.look(ctx, campaignID)
	if err != nil {
		return err
	}
	now.views = p.views
	if !now.lacksMoves() {
		return nil
	}
	for i := range now.books {
		b := &now.books[i]
		v := &now.views[i]
		if !isAhead(v, b) || isRestored(b) {
			continue
		}
		if err := m.lose(ctx, b.ID, lua.Position{Epoch: v.Epoch, Moves: v.Moves}); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: mysql was restored to a time before moves of units of %s", ErrBlocked, campaignID)
}

// lose takes a shard out of use that was seen with a move that MySQL does not know.
func (m *Mover) lose(ctx context.Context, id string, seen lua.Position) error {
	_, err := m.loader.Recover(ctx, id, seen)
	if errors.Is(err, campaigns.ErrLost) {
		return nil
	}
	return err
}

// doAll takes steps in different shards at once: a recall may wait for seconds until it is on a disk.
func (m *Mover) doAll(ctx context.Context, p *picture, all []step, gone map[int]bool) error {
	var g errgroup.Group
	for _, s := range all {
		if !m.oneByOne && len(all) > 1 {
			g.Go(func() error { return m.do(ctx, p, s, gone) })
		} else if err := m.do(ctx, p, s, gone); err != nil {
			return err
		}
	}
	return g.Wait() //nolint:wrapcheck // do wraps it
}

// do takes a step that changes something.
func (m *Mover) do(ctx context.Context, p *picture, s step, gone map[int]bool) error {
	c := &p.books[s.shard-1]
	switch s.verb {
	case verbLoad:
		_, err := m.loader.Hydrate(ctx, c.ID)
		if errors.Is(err, campaigns.ErrLost) {
			gone[s.shard] = true
			err = nil
		}
		return err
	case verbFinish:
		move, err := m.books.open(ctx, c)
		if err != nil || move == nil {
			return err
		}
		return m.complete(ctx, c, move)
	default:
		units := s.units
		if c.Kind == models.KindPacket {
			units = min(units, lua.PushMax)
		}
		move, err := m.books.begin(ctx, c, s.kind, units)
		if err != nil || move == nil {
			return err
		}
		m.count(begun, move, 1)
		return m.complete(ctx, c, move)
	}
}

// complete takes the steps of an open move that come after its begin.
func (m *Mover) complete(ctx context.Context, c *models.Campaign, move *models.StockMove) error {
	m.steps.At("begun")
	amount, err := m.redis.Move(ctx, c, move)
	switch {
	case errors.Is(err, lua.ErrAbsent), errors.Is(err, lua.ErrOther), errors.Is(err, lua.ErrDamaged), errors.Is(err, lua.ErrNotNext):
		return nil // the next look tells: it is done by now, or the shard must be loaded, which settles the move
	case errors.Is(err, lua.ErrReused): // MySQL knows one move less than Redis has taken
		return m.lose(ctx, c.ID, lua.Position{Epoch: c.Epoch, Moves: move.No + 1})
	case err != nil:
		return err
	}
	m.steps.At("moved")
	err = m.books.finish(ctx, move, amount)
	if err == nil {
		m.count(units, move, amount)
	}
	m.steps.At("done")
	return err
}

// prove looks at a campaign a second time and returns from how many units on a claim was too large at the moment of the look into the
// books: more than the reserve and all shards had. 0 is not proven: something moved. Packets that are not released count as if they were
// not there.
//
// Each shard had no more units free at that moment than when it was seen before, because nothing became free in it from then until it
// was seen again; and no units were on their way.
func (m *Mover) prove(ctx context.Context, campaignID string, before *picture) (models.Refill, error) {
	p, err := m.look(ctx, campaignID, nil)
	if err != nil || len(p.views) != len(before.views) {
		return models.Refill{}, err
	}
	from := p.reserve + 1
	for i := range p.views {
		c := &p.books[i]
		if !p.views[i].IsSame(&before.views[i]) || c.MoveNo != c.MovedNo || c.Epoch != p.views[i].Epoch || p.views[i].Moves != c.MovedNo {
			return models.Refill{}, nil
		}
		from += before.views[i].Free()
	}
	return models.Refill{SoldOutFrom: from, NotReleased: p.unreleased > 0}, nil
}

// Gather has the reserve hold so many units at a moment, see campaigns.Gatherer.
func (m *Mover) Gather(ctx context.Context, campaignID string, units int64) error {
	refill, err := m.Refill(ctx, campaignID, models.Need{Units: units})
	if err == nil && refill.SoldOutFrom > 0 {
		return fmt.Errorf("%w: campaign %s has fewer than %d free", campaigns.ErrTaken, campaignID, units)
	}
	return err
}
