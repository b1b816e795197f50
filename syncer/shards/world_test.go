package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/lua"
	"dibs/models"
)

// world is a campaign with its servers in memory. Each call of a mover is one step: before it the mover waits until it is let go on, so
// that a test decides who goes next, and who dies.
type world struct {
	total   int64
	reserve int64
	shards  []*place

	rows rows

	flaw   flaw
	actors []*actor
}

// flaw is what a world does wrong, so that the test can be seen to catch it.
type flaw int

const (
	flawNone             flaw = iota
	flawNotKept               // a recall is answered before it is on the disk
	flawGrantFirst            // units are granted in Redis before MySQL has given them
	flawCountsTwice           // a move that is sent again counts again
	flawSoldOutAtAGlance      // sold out by one look
	flawLeavesPackets         // a recall ends, and its packets stay the shard's
	flawNamesOthers           // a recall that is sent again names the packets that are the last by then
)

// place is a shard: its row in MySQL, what its Redis holds, and what is on the disk of that.
type place struct {
	id               string
	granted          int64
	moveNo, movedNo  int64
	epoch            int64
	resident         bool
	open             *models.StockMove
	memory, disk     held
	isAbsent, isAway bool
}

// held is what Redis holds of a shard. Its lists are never changed in place: the disk has them, too.
type held struct {
	epoch, total, taken, moves, amount, ups int64

	list, given, moved []int64 // packets
}

func (h *held) free() int64 { return max(0, h.total-h.taken) }

func newWorld(total int64, shards int) *world {
	w := &world{total: total, reserve: total, rows: make(rows, total)}
	for i := range shards {
		loan := total / int64(2*shards)
		w.reserve -= loan
		h := held{epoch: 1, total: loan, list: w.rows.deal(i+1, 0, loan)}
		w.shards = append(w.shards, &place{id: models.ShardID("c", i+1), granted: loan, epoch: 1, resident: true, memory: h, disk: h})
	}
	return w
}

// taken is what users hold: a claim that was answered is on the disk.
func (w *world) taken() (n int64) {
	for _, s := range w.shards {
		n += s.disk.taken
	}
	return n
}

func (w *world) claim(shard int, units int64) bool {
	s := w.shards[shard]
	if s.isAbsent || s.isAway || s.memory.free() < units {
		return false
	}
	s.memory.taken += units
	s.memory.claim(units)
	s.disk = s.memory // with all that was written before
	w.changed()
	return true
}

func (w *world) release(shard int, units int64) {
	s := w.shards[shard]
	if s.isAbsent || s.isAway || s.memory.taken < units {
		return
	}
	s.memory.taken -= units
	s.memory.release(units)
	s.memory.ups++
	s.disk = s.memory
	w.changed()
}

// die has the Redis of a shard die and come back with what is on its disk.
func (w *world) die(shard int) { w.shards[shard].memory = w.shards[shard].disk }

// evict takes a shard out of Redis.
func (w *world) evict(shard int) {
	s := w.shards[shard]
	s.disk = s.memory
	s.isAbsent, s.resident = true, false
}

// broken says what must never be.
func (w *world) broken() error {
	granted := w.reserve
	for i, s := range w.shards {
		granted += s.granted
		if !s.isAbsent && s.memory.epoch == s.epoch && s.memory.moves >= s.movedNo && s.memory.total > s.granted {
			return fmt.Errorf("shard %d has %d on loan in redis, %d in mysql", i+1, s.memory.total, s.granted)
		}
	}
	switch {
	case w.taken() > w.total:
		return fmt.Errorf("%d of %d units are taken", w.taken(), w.total)
	case granted != w.total:
		return fmt.Errorf("reserve and loans are %d units, the campaign has %d", granted, w.total)
	case w.reserve < 0:
		return errors.New("the reserve is below 0")
	}
	return w.brokenPackets()
}

// changed notes for everybody who looks how few units were free at a moment since it began.
func (w *world) changed() {
	for _, a := range w.actors {
		a.fewest = min(a.fewest, w.total-w.taken())
	}
}

func (a *actor) look(context.Context, string) (*picture, error) {
	a.step()
	rows := make([]models.Campaign, len(a.w.shards))
	for i, s := range a.w.shards {
		rows[i] = models.Campaign{ID: s.id, Kind: models.KindPacket, Total: s.granted, MoveNo: s.moveNo, MovedNo: s.movedNo, Epoch: s.epoch}
	}
	return &picture{reserve: a.w.reserve, books: rows}, nil
}

// Shards reads one shard after the other, as servers of their own are read.
func (a *actor) Shards(_ context.Context, ids []string) []lua.ShardView {
	views := make([]lua.ShardView, len(ids))
	for i := range ids {
		a.step()
		s := a.w.shards[i]
		m := s.memory
		switch {
		case s.isAway:
			views[i].Err = lua.ErrUnavailable
		case s.isAbsent:
			views[i].Err = lua.ErrAbsent
		default:
			views[i] = lua.ShardView{Epoch: m.epoch, Moves: m.moves, Ups: m.ups, Total: m.total, Taken: m.taken}
		}
	}
	return views
}

func (a *actor) Move(_ context.Context, c *models.Campaign, m *models.StockMove) (int64, error) {
	a.step()
	s := a.w.shards[m.Shard-1]
	h := &s.memory
	switch {
	case s.isAway:
		return 0, lua.ErrUnavailable
	case s.isAbsent:
		return 0, lua.ErrAbsent
	case h.epoch != c.Epoch:
		return 0, lua.ErrOther
	case h.moves == m.No && a.w.flaw != flawCountsTwice:
		if a.w.flaw == flawNamesOthers {
			h.moved = last(h.list, m.Want)
		}
	case h.moves != m.No-1 && h.moves != m.No:
		return 0, lua.ErrNotNext
	case m.Kind == models.MoveGrant:
		h.total, h.amount, h.moves, h.ups = h.total+m.Want, m.Want, m.No, h.ups+1
		h.list, h.moved = slices.Concat(h.list, numbersOf(m.Packets)), nil
	default:
		h.amount = min(m.Want, h.free())
		h.total, h.moves = h.total-h.amount, m.No
		h.moved = last(h.list, h.amount)
		h.list = h.list[:len(h.list)-len(h.moved)]
	}
	amount := h.amount
	if m.Kind == models.MoveRecall {
		m.Packets = packetsOf(h.moved)
	}
	if m.Kind == models.MoveRecall && a.w.flaw != flawNotKept {
		a.step() // it may die before it is on the disk
		if s.isAbsent || h.epoch != c.Epoch || h.moves < m.No {
			return 0, lua.ErrOutcomeUnknown
		}
		s.disk = *h
	}
	return amount, nil
}

func (a *actor) begin(_ context.Context, c *models.Campaign, kind models.MoveKind, units int64) (*models.StockMove, error) {
	shard := 0
	for i, s := range a.w.shards {
		if s.id == c.ID {
			shard = i
		}
	}
	s := a.w.shards[shard]
	if kind == models.MoveGrant && a.w.flaw == flawGrantFirst && !s.isAbsent {
		a.step()
		s.memory.total += units
		a.step()
		s.memory.total -= units // which its move adds again
	}
	a.step()
	if !s.resident || s.epoch != c.Epoch || s.moveNo != c.MoveNo || s.movedNo != c.MoveNo || kind == models.MoveGrant && a.w.reserve < units {
		return nil, nil //nolint:nilnil // as store does
	}
	s.moveNo++
	s.open = &models.StockMove{CampaignID: "c", Shard: shard + 1, No: s.moveNo, Kind: kind, Want: units}
	move := *s.open
	if kind == models.MoveGrant {
		s.granted += units
		a.w.reserve -= units
		move.Packets = packetsOf(a.w.rows.deal(shard+1, s.moveNo, units))
	}
	return &move, nil
}

func (a *actor) open(_ context.Context, c *models.Campaign) (*models.StockMove, error) {
	a.step()
	for i, s := range a.w.shards {
		if s.id == c.ID && s.open != nil && s.open.No == c.MoveNo {
			move := *s.open
			if move.Kind == models.MoveGrant {
				move.Packets = packetsOf(a.w.rows.of(i+1, move.No))
			}
			return &move, nil
		}
	}
	return nil, nil //nolint:nilnil // as store does
}

func (a *actor) finish(_ context.Context, m *models.StockMove, amount int64) error {
	a.step()
	s := a.w.shards[m.Shard-1]
	if s.moveNo != m.No || s.movedNo != m.No-1 {
		return nil
	}
	s.movedNo, s.open = m.No, nil
	if m.Kind == models.MoveRecall {
		s.granted -= amount
		a.w.reserve += amount
		if a.w.flaw != flawLeavesPackets {
			return a.w.rows.putBack(m)
		}
	}
	return nil
}

// Hydrate loads a shard that Redis lacks, or that it went back with, as residency does: it settles the open move.
func (a *actor) Hydrate(_ context.Context, id string) (lua.Meta, error) {
	a.step()
	for i, s := range a.w.shards {
		if s.id != id || !s.isAbsent && s.memory.epoch == s.epoch && s.memory.moves >= s.movedNo {
			continue
		}
		s.movedNo, s.open, s.resident, s.isAbsent = s.moveNo, nil, true, false
		s.epoch++
		s.memory = held{epoch: s.epoch, total: s.granted, taken: s.disk.taken, moves: s.moveNo, given: s.disk.given}
		s.memory.list = a.w.rows.free(i+1, s.memory.given)
		s.disk = s.memory
	}
	return lua.Meta{}, nil
}

func (a *actor) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return a.Hydrate(ctx, id)
}
