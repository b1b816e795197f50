package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"dibs/models"
	"dibs/models/event"
)

// Replies of scripts about lots.
const (
	statusToken = 1 // load.lua and resume.lua: another token
	// debit.lua, credit.lua: another load.
	// evict.lua, fence.lua, release.lua: not now.
	statusElse       = 3
	statusGeneration = 3 // load.lua and resume.lua: another generation
	statusIncomplete = 4 // load.lua: staged data is missing
)

// Held is what a loader's fence found of a lot in Redis.
type Held int

// Values of Held.
const (
	HeldNothing Held = 0 // or the token of another loader
	HeldStopped Held = 1 // the lot, stopped
	HeldOlder   Held = 2 // the lot, of an older generation
	HeldDamaged Held = 3 // parts of it, or other data
	HeldLive    Held = 4 // live, and not fenced
)

// Fenced is a fenced lot.
type Fenced struct {
	Held Held
	Position
}

// Values of how in Fence.
const (
	FenceAway  = "load"   // lots that are away
	FenceAny   = "reload" // live lots too
	FenceRenew = "renew"  // extend the fence
	FenceLeave = "leave"  // give up: another loader may start at once
)

// Fence stores a loader's token in lots, which then refuse claims. Errors of
// a lot: ErrOther (another loader has it), and those of Redis.
func (s *Scripts) Fence(ctx context.Context, token, how string, ids []string) (fenced []Fenced, errs []error) {
	calls := make([]call, len(ids))
	for i, id := range ids {
		k := s.KeysOf(id)
		calls[i] = call{[]string{k.State, k.Users, k.Keys, k.Signals}, []any{token, how}}
	}
	fenced = make([]Fenced, len(ids))
	errs = make([]error, len(ids))
	for i, a := range s.runPipelined(ctx, "fence", calls) {
		fenced[i], errs[i] = readFence(ids[i], &a) //nolint:gosec // an answer a call
	}
	return fenced, errs
}

func readFence(id string, a *answer) (f Fenced, err error) {
	switch {
	case a.err != nil:
		return f, a.err
	case a.code == statusElse:
		return f, fmt.Errorf("%w: %s: another process loads it", ErrOther, id)
	case a.code == statusToken:
		return Fenced{Held: HeldLive}, nil
	}
	numbers, ok := numbersOf(a.reply[1:])
	if len(a.reply) != 5 || !ok {
		return f, badReply("fence", a.reply)
	}
	return Fenced{Held(numbers[0]), Position{Epoch: numbers[1], Seq: numbers[2], Units: numbers[3]}}, nil
}

// Load is what a loader sends of a lot.
type Load struct {
	Campaign   *models.Campaign // the lot; Epoch is the number of the load
	Definition *models.Definition
	Token      string
	Generation int64 // of the partition, by MySQL
	Seq        int64 // the highest seq ever used
	Sold       int64 // units ever sold
	Taken      int64 // units of live claims and parked ones, and lost ones
	Released   int64 // claims whose release Redis has applied
	Rows       int64 // MySQL's claims of the lot, see event.Event
	RowUnits   int64 // their units
	Total      int64 // of a shard: its units
	Shares     Shares

	users, keys, packets, pushed int64 // staged
	lastMs                       int64 // time of the newest staged claim
}

// Load makes a lot without claims live, for tools and tests. Package
// lots loads those with rows. loaded is false if it was live.
func (s *Scripts) Load(ctx context.Context, c *models.Campaign) (loaded bool, err error) {
	token := uuid.NewString()
	fenced, errs := s.Fence(ctx, token, FenceAway, []string{c.ID})
	if errs[0] != nil || fenced[0].Held == HeldLive {
		return false, errs[0]
	}
	generation := s.Signals(ctx)[PartitionOf(c.ID, s.Partitions())].Generation
	err = s.LoadAll(ctx, []Load{{Campaign: c, Token: token, Generation: generation, Total: c.Total}})[0]
	return err == nil, err
}

// LoadAll loads lots without staged data, in one round trip. Errors of a lot:
// ErrOther (another loader has it), ErrGeneration, and those of Redis.
func (s *Scripts) LoadAll(ctx context.Context, loads []Load) []error {
	calls := make([]call, len(loads))
	errs := make([]error, len(loads))
	for i := range loads {
		calls[i], errs[i] = s.loadCall(&loads[i])
		if errs[i] != nil {
			return errs
		}
	}
	for i, a := range s.runPipelined(ctx, "load", calls) {
		errs[i] = readLoad(loads[i].Campaign.ID, a.code, a.err) //nolint:gosec // an answer a call
	}
	return errs
}

func (s *Scripts) loadCall(l *Load) (call, error) {
	c := l.Campaign
	k := s.KeysOf(c.ID)
	users, keys, waves := k.staged(c.Epoch)
	event, payload, err := s.loadEvent(event.LotLoaded, l)
	args := []any{s.serverNow(), l.Token, l.Generation, l.users, l.keys, l.packets, event, payload, l.lastMs}
	args = append(append(args, fixed(c)...), definition(c)...)
	args = append(args, "epoch", c.Epoch, "version", c.Version,
		"made_ms", madeMs(c), "taken", l.Taken, "sold", l.Sold, "seq", l.Seq, "released", l.Released)
	switch {
	case c.Kind == models.KindPacket:
		args = append(args, "total", l.Taken+l.packets, "pushed", l.pushed)
	case models.IsShardID(c.ID):
		args = append(args, "total", l.Total) // then only debits and credits change it
	}
	if models.IsShardID(c.ID) {
		args = append(args, "out", l.Shares.Out, "in", l.Shares.In, "ups", 0, "shards", c.Shards, "shard_by", c.ShardBy)
	}
	return call{[]string{k.State, k.Users, k.Keys, k.Waves, k.Moves, users, keys, waves, k.Stream, k.Signals}, args}, err
}

func (s *Scripts) loadEvent(kind event.Type, l *Load) (id string, payload []byte, err error) {
	c := l.Campaign
	e := event.Event{
		Type: kind, Epoch: c.Epoch, Seq: l.Seq, Sold: l.Sold, Claims: l.Rows, Quantity: l.RowUnits,
		Version: c.Version, Generation: l.Generation, At: s.at(), Definition: l.Definition, MadeMs: madeMs(c),
	}
	if kind == event.LotResumed { // it keeps its definition
		e.Version = 0
		e.Definition = nil
	}
	e.CampaignID, e.Shard = models.SplitShardID(c.ID)
	return newEvent(&e)
}

func newEvent(e *event.Event) (id string, payload []byte, err error) {
	made, err := uuid.NewV7()
	if err != nil {
		return "", nil, fmt.Errorf("lua: event: %w", err)
	}
	e.V = event.Version
	e.ID = made.String()
	payload, err = json.Marshal(e)
	return e.ID, payload, err
}

func (s *Scripts) at() models.Time { return models.NewTime(s.opts.Clock()) }

func (s *Scripts) atText() string { return s.at().Format(models.TimeLayout) }

// readLoad returns the error of a reply of load.lua or resume.lua.
func readLoad(id string, code int64, err error) error {
	switch {
	case err != nil || code == statusOK:
		return err
	case code == statusToken:
		return fmt.Errorf("%w: %s: another process loads it", ErrOther, id)
	case code == statusGeneration:
		return fmt.Errorf("%w: %s", ErrGeneration, id)
	}
	return fmt.Errorf("%w: load %s: staged records are missing", ErrUnavailable, id)
}

// Resume continues a stopped lot under the next epoch, after what was
// seen. It uses Campaign, Token, Generation, Seq, Sold, Rows and
// RowUnits of l. Errors as LoadAll.
func (s *Scripts) Resume(ctx context.Context, l *Load) error {
	k := s.KeysOf(l.Campaign.ID)
	event, payload, err := s.loadEvent(event.LotResumed, l)
	if err != nil {
		return err
	}
	args := []any{l.Token, l.Generation, l.Campaign.Epoch, l.Seq, l.Sold, event, payload}
	code, _, err := s.run(ctx, "resume", []string{k.State, k.Users, k.Keys, k.Stream, k.Signals}, args)
	return readLoad(l.Campaign.ID, code, err)
}

// Evict removes idle lots in one round trip, and reports which. Each
// lot has its own error, of Redis.
func (s *Scripts) Evict(ctx context.Context, lots []models.Campaign, idle time.Duration) (evicted []bool, errs []error) {
	calls := make([]call, len(lots))
	evicted = make([]bool, len(lots))
	errs = make([]error, len(lots))
	for i := range lots {
		c := &lots[i]
		k := s.KeysOf(c.ID)
		e := event.Event{Type: event.LotEvicted, Epoch: c.Epoch, At: s.at()}
		e.CampaignID, e.Shard = models.SplitShardID(c.ID)
		event, payload, err := newEvent(&e)
		if err != nil {
			errs[i] = err
			return evicted, errs
		}
		calls[i] = call{
			keys: []string{k.State, k.Users, k.Keys, k.Waves, k.Moves, k.Stream},
			args: []any{s.serverNow(), idle.Milliseconds(), event, payload, ""},
		}
	}
	for i, a := range s.runPipelined(ctx, "evict", calls) {
		evicted[i] = a.err == nil && a.code == statusOK
		errs[i] = a.err
	}
	return evicted, errs
}

// Delete removes a lot that a token has fenced, and appends an event to its
// stream. Errors: ErrOther (another loader has it), and those of Redis.
func (s *Scripts) Delete(ctx context.Context, id, token, eventID string, event []byte) error {
	k := s.KeysOf(id)
	code, _, err := s.run(ctx, "evict", []string{k.State, k.Users, k.Keys, k.Waves, k.Moves, k.Stream},
		[]any{s.serverNow(), 0, eventID, event, token})
	if err == nil && code != statusOK {
		err = fmt.Errorf("%w: %s: another process loads it", ErrOther, id)
	}
	return err
}
