package apply

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/adder"
	"dibs/syncer/offset"
	"dibs/syncer/sums"

	"github.com/jonboulle/clockwork"
	"gorm.io/gorm"
)

// Timeout is how long one attempt at a transaction may take.
const Timeout = 30 * time.Second

// Store applies batches, one after another. Events that are in no stream
// may be applied meanwhile.
type Store struct {
	db         *gorm.DB
	partitions int
	clock      clockwork.Clock
	steps      *steps.Steps
	insertRows atomic.Int64  // rows an INSERT; fewer if the server takes smaller packets only
	positionAt map[int]int64 // by partition, the second of its last position
}

// New returns a store for the streams of so many partitions.
func New(db *gorm.DB, partitions int, clock clockwork.Clock, at *steps.Steps) *Store {
	s := &Store{db: db, partitions: partitions, clock: clock, steps: at, positionAt: make(map[int]int64)}
	s.insertRows.Store(int64(sqlstore.RowsPerInsert(db)))
	return s
}

// Done is what a transaction did.
type Done struct {
	Sums    adder.Sums // of what was written
	Known   int        // MySQL had these rows
	Dropped int        // unanswered claims whose units are sold
	Parked  []Parked
	Waiting map[adder.Lot]error // lots whose counters wait, and why; nil: they are locked

	written  []*event.Raw  // claims that were inserted
	moves    []*event.Raw  // new halves of moves, and proven debits
	released adder.Sums    // by decisions
	booked   []event.Event // for the ledger
}

// Events is how many claims and moves have new rows.
func (d *Done) Events() int { return len(d.written) + len(d.moves) }

type application struct {
	*Store
	Done

	ctx      context.Context //nolint:containedctx // lives as long as the transaction
	tx       *gorm.DB
	b        *Batch
	started  time.Time
	lots     map[adder.Lot]lotRow
	deleted  map[string]models.Time  // campaigns, by deletions that MySQL had lost
	ofLots   []*event.Raw            // events of lots, without those of deleted campaigns
	earlier  map[*event.Raw]bool     // moves of deleted campaigns whose id a later one has
	inOutbox map[string]bool         // ids of events in the outbox; false once applied
	heldUpto map[adder.Lot]int64     // the expirer has passed claims up to this seq
	added    map[*event.Raw]int64    // packets, by their event
	loads    map[*event.Raw]position // what MySQL has at events of loads
	kept     map[int]int64           // seconds of its positions, by partition
}

type lotRow struct {
	adder.Lot  `gorm:"embedded"`
	IsArchived bool // all its claims have been written before
	HoldForMs  int64
	Free       int64 // units, before the batch; lost ones among them
	Lost       int64 // units
}

// Apply applies a batch in one transaction. A call
// after an unknown commit finds the offsets at the end
// of the entries. Errors: offset.MovedError, and the database's.
func (s *Store) Apply(ctx context.Context, b *Batch) (*Done, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	a := &application{Store: s, ctx: ctx, b: b, started: s.clock.Now()}
	s.steps.At("begin")
	err := sqlstore.InTxBrief(ctx, s.db, func(tx *gorm.DB) error {
		a.tx = tx
		return a.run()
	})
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	maps.Copy(s.positionAt, a.kept)
	s.steps.At("committed")
	return &a.Done, nil
}

// run is the transaction. Lock order: streams, hold cursors, claims,
// moves, packets, lots, outbox.
func (a *application) run() error {
	a.Done = Done{Waiting: make(map[adder.Lot]error), released: make(adder.Sums)}
	var claims, moves []*event.Raw
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"offsets", func() error { return offset.Lock(a.tx, stepsOf(a.b.Streams...)) }},
		{"outbox", a.readOutbox},
		{"deletions", a.deleteForgotten},
		{"definitions", a.define},
		{"earlier campaigns", a.dropEarlier},
		{"packets", a.addPackets},
		{"lots", a.readLots},
		{"hold_cursors", a.lockHolds},
		{"claims", func() error {
			claims, moves = a.split()
			return a.insert(claims)
		}},
		{"hold_dues", a.putDues},
		{"stock_moves", func() error { return a.applyMoves(moves) }},
		{"decisions", a.decide},
		{"claims.dropped", a.dropUnanswered}, // uses what this batch releases
		{"owners", a.setOwners},
		{"parked", a.insertParked},
		{"loads", a.countBefore},
		{"counters", a.moveLots},
		{"order", a.noteOrder},
		{"released", func() error { return sums.Release(a.ctx, a.tx, a.released, a.clock.Now()) }},
		{"events of lots", a.applyLots},
		{"given up", a.giveUp},
		{"parked claims", a.refuseDiscarded},
		{"confirmed", a.confirm},
		{"moved offsets", func() error { return offset.Store(a.ctx, a.tx, stepsOf(a.b.Streams...), a.clock.Now()) }},
		{"positions", a.keepPositions},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		a.steps.At(step.name)
	}
	return nil
}

// stepsOf returns how far each stream's offset moves.
func stepsOf(streams ...adder.Taken) []offset.Step {
	steps := make([]offset.Step, len(streams))
	for i := range streams {
		steps[i] = offset.Step{Partition: streams[i].Partition, From: streams[i].From, To: streams[i].Upto}
	}
	return steps
}

// keepPositions stores one position a second of each stream.
func (a *application) keepPositions() error {
	now := a.clock.Now()
	a.kept = make(map[int]int64)
	var due []offset.Step
	for _, s := range a.b.Streams {
		if a.positionAt[s.Partition] != now.Unix() {
			a.kept[s.Partition] = now.Unix()
			due = append(due, stepsOf(s)...)
		}
	}
	return offset.Keep(a.ctx, a.tx, due, now)
}

func (a *application) readLots() error {
	a.lots = make(map[adder.Lot]lotRow, len(a.b.Sums))
	if len(a.b.Sums) == 0 {
		return nil
	}
	// by primary key; rows of other shards are ignored
	ids := make([]string, 0, len(a.b.Sums))
	for lot := range a.b.Sums {
		ids = append(ids, lot.CampaignID)
	}
	var rows []lotRow
	err := a.tx.Table("lots").Where("campaign_id IN ?", ids).Select("campaign_id, shard, archived_claims > 0 AS is_archived," +
		" (SELECT hold_for_ms FROM definitions d WHERE d.campaign_id = lots.campaign_id) AS hold_for_ms," +
		" CASE WHEN redis_total > total THEN redis_total ELSE total END - claimed AS free, lost_units AS lost").Scan(&rows).Error
	if err != nil {
		return err
	}
	for _, row := range rows {
		a.lots[row.Lot] = row
	}
	return nil
}

func (a *application) split() (claims, moves []*event.Raw) {
	claims = make([]*event.Raw, 0, len(a.b.Rows))
	for _, r := range a.b.Rows {
		lot, exists := a.lots[adder.LotOf(&r.Event)]
		switch {
		case r.Unreadable != "":
			a.park(r, parkedUnreadable, r.Unreadable)
		case a.earlier[r], !exists && r.IsMove(): // the units are in no lot
			a.Known++
		case !exists:
			a.park(r, parkedUnknownCampaign, "no such campaign")
		case r.IsMove():
			moves = append(moves, r)
		case lot.IsArchived:
			a.Known++
		default:
			claims = append(claims, r)
		}
	}
	return claims, moves
}
