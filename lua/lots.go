package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"dibs/models"
)

// What replies of scripts about lots say.
const (
	statusToken      = 1 // load.lua and resume.lua: the token is another
	statusElse       = 3 // debit.lua, credit.lua: another load is here; evict.lua: not now; fence.lua, release.lua: someone loads the lot
	statusGeneration = 3 // load.lua and resume.lua: the partition has another generation
	statusIncomplete = 4 // load.lua: not all that was staged is there
)

// Held says what Redis held of a lot when a loader fenced it.
type Held int

// What fence.lua finds.
const (
	HeldNothing Held = 0 // or the token of another loader
	HeldStopped Held = 1 // the lot as it was when it was stopped
	HeldOlder   Held = 2 // the lot, of an older generation of its partition
	HeldDamaged Held = 3 // parts of it, or something else
	HeldLive    Held = 4 // it takes claims, and was not fenced
)

// Fenced is a lot that a loader fenced.
type Fenced struct {
	Held Held
	Position
}

// How a loader fences.
const (
	FenceAway  = "load"   // lots that are away
	FenceAny   = "reload" // lots that take claims, too
	FenceRenew = "renew"  // lots that it fenced, for longer
	FenceLeave = "leave"  // no more: another loader may begin at once
)

// Fence leaves a loader's token in lots, which take no claims then; sent again it holds for longer. Each lot has its own error: ErrOther
// (another loader is at it), and those of a Redis that is away.
func (s *Scripts) Fence(ctx context.Context, token, how string, ids []string) (fenced []Fenced, errs []error) {
	calls := make([]call, len(ids))
	for i, id := range ids {
		k := s.KeysOf(id)
		calls[i] = call{[]string{k.State, k.Users, k.Keys, k.Signals}, []any{token, how}}
	}
	fenced = make([]Fenced, len(ids))
	errs = make([]error, len(ids))
	for i, a := range s.runPipelined(ctx, s.fence, calls) {
		errs[i] = a.err
		if a.err == nil {
			fenced[i], errs[i] = readFence(ids[i], a.reply)
		}
	}
	return fenced, errs
}

func readFence(id string, reply []any) (f Fenced, err error) {
	code, err := status("fence", reply)
	switch {
	case err != nil:
		return f, err
	case code == statusElse:
		return f, fmt.Errorf("%w: %s: another process loads it", ErrOther, id)
	case code == statusToken:
		return Fenced{Held: HeldLive}, nil
	}
	numbers, ok := numbersOf(reply[1:])
	if len(reply) != 5 || !ok {
		return f, badReply("fence", reply)
	}
	return Fenced{Held(numbers[0]), Position{Epoch: numbers[1], Seq: numbers[2], Units: numbers[3]}}, nil
}

// Load is what a loader brings Redis of a lot.
type Load struct {
	Campaign   *models.Campaign // the lot, and as Epoch the number of the load
	Definition *models.Definition
	Token      string
	Generation int64 // of the partition, by MySQL
	Seq        int64 // the highest seq that was ever used
	Sold       int64 // units that were ever sold
	Taken      int64 // units that are not for sale: of live claims, of parked ones, and lost ones
	Released   int64 // claims that are released and whose release Redis has had
	Rows       int64 // claims that MySQL has of the lot, see models.Event
	RowUnits   int64 // their units
	Total      int64 // of a shard: its units
	Shares     Shares

	users, keys, packets, pushed int64 // that were staged
}

// Load has a lot without claims be live, for tools and tests: package lots loads those of a database. loaded is false if it was live before.
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

// LoadAll puts lots in force of which nothing is staged, in one round trip. Each lot has its own error: ErrOther (another loader is at
// it), ErrGeneration, and those of a Redis that is away.
func (s *Scripts) LoadAll(ctx context.Context, loads []Load) []error {
	calls := make([]call, len(loads))
	errs := make([]error, len(loads))
	for i := range loads {
		calls[i], errs[i] = s.loadCall(&loads[i])
		if errs[i] != nil {
			return errs
		}
	}
	for i, a := range s.runPipelined(ctx, s.load, calls) {
		errs[i] = a.err
		if a.err == nil {
			errs[i] = readLoad(loads[i].Campaign.ID, s.load.name, a.reply)
		}
	}
	return errs
}

func (s *Scripts) loadCall(l *Load) (call, error) {
	c := l.Campaign
	k := s.KeysOf(c.ID)
	users, keys, waves := k.staged(c.Epoch)
	event, payload, err := s.loadEvent(models.EventLotLoaded, l)
	args := []any{s.serverNow(), l.Token, l.Generation, l.users, l.keys, l.packets, event, payload}
	args = append(append(args, fixed(c)...), definition(c)...)
	args = append(args, "epoch", c.Epoch, "version", c.Version, "taken", l.Taken, "sold", l.Sold, "seq", l.Seq, "released", l.Released)
	switch {
	case c.Kind == models.KindPacket:
		args = append(args, "total", l.Taken+l.packets, "pushed", l.pushed)
	case models.IsShardID(c.ID):
		args = append(args, "total", l.Total) // nothing else sets it, but debits and credits
	}
	if models.IsShardID(c.ID) {
		args = append(args, "out", l.Shares.Out, "in", l.Shares.In, "ups", 0, "shards", c.Shards, "shard_by", c.ShardBy)
	}
	return call{[]string{k.State, k.Users, k.Keys, k.Waves, k.Moves, users, keys, waves, k.Stream, k.Signals}, args}, err
}

// loadEvent is the event of a load, or of a lot that goes on.
func (s *Scripts) loadEvent(kind models.EventType, l *Load) (id string, payload []byte, err error) {
	c := l.Campaign
	e := models.Event{
		Type: kind, Epoch: c.Epoch, Seq: l.Seq, Sold: l.Sold, Claims: l.Rows, Quantity: l.RowUnits, Version: c.Version, Generation: l.Generation, At: s.at(),
		Definition: l.Definition,
	}
	if kind == models.EventLotResumed { // it works by the definition that it had
		e.Version = 0
		e.Definition = nil
	}
	e.CampaignID, e.Shard = models.SplitShardID(c.ID)
	return newEvent(&e)
}

func newEvent(e *models.Event) (id string, payload []byte, err error) {
	made, err := uuid.NewV7()
	if err != nil {
		return "", nil, fmt.Errorf("lua: event: %w", err)
	}
	e.V = models.EventVersion
	e.ID = made.String()
	payload, err = json.Marshal(e)
	return e.ID, payload, err
}

func (s *Scripts) at() models.Time { return models.NewTime(s.opts.Clock()) }

// readLoad reads a reply of load.lua or resume.lua.
func readLoad(id, script string, reply []any) error {
	code, err := status(script, reply)
	switch {
	case err != nil || code == statusOK:
		return err
	case code == statusToken:
		return fmt.Errorf("%w: %s: another process loads it", ErrOther, id)
	case code == statusGeneration:
		return fmt.Errorf("%w: %s", ErrGeneration, id)
	}
	return fmt.Errorf("%w: load %s: staged records are gone", ErrUnavailable, id)
}

// Resume lets a lot go on that was stopped, under the next epoch and behind what was seen. Of l it reads Campaign, Token, Generation, Seq,
// Sold, Rows and RowUnits. Errors as LoadAll.
func (s *Scripts) Resume(ctx context.Context, l *Load) error {
	k := s.KeysOf(l.Campaign.ID)
	event, payload, err := s.loadEvent(models.EventLotResumed, l)
	if err != nil {
		return err
	}
	args := []any{l.Token, l.Generation, l.Campaign.Epoch, l.Seq, l.Sold, event, payload}
	reply, err := s.run(ctx, s.resume, []string{k.State, k.Users, k.Keys, k.Stream, k.Signals}, args)
	if err != nil {
		return err
	}
	return readLoad(l.Campaign.ID, s.resume.name, reply)
}

// Evict removes lots from Redis that no one has claimed from for idle, in one round trip. evicted are those that Redis does not hold then.
// Each has its own error: those of a Redis that is away.
func (s *Scripts) Evict(ctx context.Context, lots []models.Campaign, idle time.Duration) (evicted []bool, errs []error) {
	calls := make([]call, len(lots))
	evicted = make([]bool, len(lots))
	errs = make([]error, len(lots))
	for i := range lots {
		c := &lots[i]
		k := s.KeysOf(c.ID)
		e := models.Event{Type: models.EventLotEvicted, Epoch: c.Epoch, At: s.at()}
		e.CampaignID, e.Shard = models.SplitShardID(c.ID)
		event, payload, err := newEvent(&e)
		if err != nil {
			errs[i] = err
			return evicted, errs
		}
		calls[i] = call{
			keys: []string{k.State, k.Users, k.Keys, k.Waves, k.Moves, k.Stream}, args: []any{s.serverNow(), idle.Milliseconds(), event, payload},
		}
	}
	for i, a := range s.runPipelined(ctx, s.evict, calls) {
		errs[i] = a.err
		if a.err != nil {
			continue
		}
		code, err := status(s.evict.name, a.reply)
		evicted[i] = err == nil && code == statusOK
		errs[i] = err
	}
	return evicted, errs
}

// ask runs a script and reads the status of its reply.
func (s *Scripts) ask(ctx context.Context, one script, keys []string, args []any) (int64, []any, error) {
	reply, err := s.run(ctx, one, keys, args)
	if err != nil {
		return 0, nil, err
	}
	code, err := status(one.name, reply)
	return code, reply, err
}
