package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// campaign is a campaign of a round, and all that is known of it.
type campaign struct {
	id      string
	packets bool
	perUser int64
	extra   *extraLimit
	perDay  int64 // units per user; the round is within one day
	lowAt   int64
	hold    time.Duration
	users   int
	shards  int

	features []string
	claims   traffic
	closing  atomic.Bool  // it is to be closed during the faults, and gets no more claims
	still    atomic.Int64 // the shard without claims now; 0: none

	mu       sync.Mutex
	acted    map[string]time.Time // an operator's last use of a feature
	totals   []spell
	limits   []spell // units per user
	paused   []spell // value 1: paused
	starts   []spell // milliseconds since 1970
	ends     []spell
	sure     int64     // packets that certainly exist
	doubt    int64     // upper bound of packets that may exist
	release  time.Time // of those in doubt
	batches  []any     // all answered requests that added packets
	requests []*request
	closed   bool
}

func (c *campaign) has(feature string) bool { return slices.Contains(c.features, feature) }

// rests reports whether the user's shard gets no claims now.
func (c *campaign) rests(user string) bool {
	return c.shards > 1 && c.still.Load() == int64(models.ShardOfUser(user, c.shards))
}

// endless ends the id of a campaign that is never sold out.
const endless = "-endless"

// spell is a value with the earliest time it may have been in force, and the
// time by which it certainly no longer was; till zero: it may still be.
type spell struct {
	value      int64
	from, till time.Time
	stray      bool // the request's outcome is unknown: it may be done at any later time
	refused    bool // it was never in force
}

// change records a requested value; the function it returns
// records the reply.
func (c *campaign) change(spells *[]spell, value int64) (answered func(code string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*spells = append(*spells, spell{value: value, from: time.Now()})
	n := len(*spells) - 1
	return func(code string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		(*spells)[n].stray = code != ""
		(*spells)[n].refused = code != "" && certain(code)
		if code != "" {
			return
		}
		for i := range n {
			if s := &(*spells)[i]; s.till.IsZero() && !s.stray {
				s.till = time.Now()
			}
		}
	}
}

// may lists the values that may have been in force during a time span.
func (c *campaign) may(spells *[]spell, from, till time.Time) (values []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range *spells {
		if !s.refused && !s.from.After(till.Add(blur)) && (s.till.IsZero() || !s.till.Before(from.Add(-blur))) {
			values = append(values, s.value)
		}
	}
	return values
}

// total returns the last requested total.
func (c *campaign) total() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.totals) - 1
	for c.totals[i].refused {
		i--
	}
	return c.totals[i].value
}

func (c *campaign) add(w *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, w)
}

type operator struct {
	*caller

	w    *world
	r    *rand.Rand    // of the goroutine that runs it
	turn atomic.Uint64 // index of the next API process; shared with other goroutines
}

func (o *operator) base() string {
	return o.w.apis[o.turn.Add(1)%uint64(len(o.w.apis))].frontURL
}

// errRefused means that the API refuses a valid request. The kit
// is behind the API, or a mutant is broken otherwise than meant.
var errRefused = errors.New("torture: the API refuses what it is asked")

// insistFor is how long an operator retries: Redis may be killed repeatedly.
const insistFor = 3 * time.Minute

// insist sends a request until it is done or certainly refused.
func (o *operator) insist(ctx context.Context, method, path string, body any) error {
	return o.insistOn(ctx, method, path, body, func() func(string) { return func(string) {} })
}

// insistOn is insist, and records each attempt: a failed one may
// be done at any later time.
func (o *operator) insistOn(ctx context.Context, method, path string, body any, book func() (answered func(code string))) error {
	for deadline := time.Now().Add(insistFor); ; wait(ctx, 50*time.Millisecond) {
		answered := book()
		r := o.send(ctx, method, o.base()+path, "", body)
		answered(r.code)
		switch {
		case r.code == "":
			return nil
		case r.certain():
			return fmt.Errorf("%w: %s %s: %s", errRefused, method, path, r.body)
		case time.Now().After(deadline) || ctx.Err() != nil:
			return fmt.Errorf("%w: %s %s is not done within %s: %s %s", errBroken, method, path, insistFor, r.code, r.body)
		}
	}
}

func (o *operator) open(ctx context.Context, round string, casts []cast) (all []*campaign, err error) {
	for i := range casts {
		k := &casts[i]
		c := &campaign{id: round + k.name, users: k.users, lowAt: k.lowAt, features: k.features, claims: k.claims}
		c.packets = c.has(kindPackets)
		if c.has(withShards) {
			c.shards = o.w.opt.Shards
		}
		if c.has(withHolds) {
			c.hold = ms(between(o.r, 1000, 2500))
		}
		if c.has(withLimits) {
			o.drawLimits(c)
		}
		if err := o.openOne(ctx, c, between(o.r, k.total[0], k.total[1])); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (o *operator) openOne(ctx context.Context, c *campaign, total int64) error {
	body := map[string]any{
		"id": c.id, "kind": "coupon", "per_user": c.perUser, "per_user_per_day": c.perDay, "time_zone": noon(), "low_stock_at": c.lowAt,
	}
	if c.packets {
		body["kind"] = "packet"
		body["currency"] = "CNY"
		body["sender_id"] = sender(c)
	} else {
		body["total"] = total
		c.change(&c.totals, total)("")
	}
	if c.extra != nil {
		body["limits"] = c.extra.body()
	}
	if c.hold > 0 {
		body["hold_for"] = c.hold.String()
	}
	c.shards = max(1, c.shards)
	body["shards"] = c.shards
	c.change(&c.paused, 0)("")
	c.change(&c.starts, 0)("")
	c.change(&c.ends, never)("")
	c.change(&c.limits, c.perUser)("")
	err := o.insist(ctx, http.MethodPost, "/v1/campaigns", body)
	if err != nil || !c.packets {
		return err
	}
	return o.insistPackets(ctx, c, total)
}

// lot is an unsharded campaign, or a shard, as in Redis.
type lot struct {
	campaign, id string
	partition    int
}

// lots returns the campaigns' lots, by id.
func (o *operator) lots(ctx context.Context, campaigns []*campaign) (all []lot, err error) {
	for _, c := range campaigns {
		if c.shards == 1 {
			all = append(all, lot{c.id, c.id, lua.PartitionOf(c.id, o.w.partitions)})
			continue
		}
		var placed struct {
			Shards []struct{ Shard, Partition int } `json:"shards"`
		}
		if err := o.read(ctx, "/v1/campaigns/"+c.id+"/shards", &placed); err != nil {
			return nil, err
		}
		for _, s := range placed.Shards {
			all = append(all, lot{c.id, models.ShardID(c.id, s.Shard), s.Partition})
		}
	}
	slices.SortFunc(all, func(a, b lot) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// read reads a JSON document, retrying until it gets a reply.
func (o *operator) read(ctx context.Context, path string, into any) error {
	for deadline := time.Now().Add(healWithin); ; wait(ctx, 50*time.Millisecond) {
		r := o.send(ctx, http.MethodGet, o.base()+path, "", nil)
		switch {
		case r.code == "":
			return wrap(json.Unmarshal(r.body, into))
		case time.Now().After(deadline) || ctx.Err() != nil:
			return fmt.Errorf("%w: GET %s is not answered within %s: %s %s", errBroken, path, healWithin, r.code, r.body)
		}
	}
}

func sender(c *campaign) string { return "sender-of-" + c.id }

// restock changes the total once; for packets it adds a wave,
// perhaps with a later release time.
func (o *operator) restock(ctx context.Context, c *campaign, n int64) {
	if c.packets {
		_, _ = o.addPackets(ctx, c, n) // a wave in doubt is sent again
		return
	}
	total := max(1, c.total()+n)
	answered := c.change(&c.totals, total)
	answered(o.send(ctx, http.MethodPatch, o.base()+"/v1/campaigns/"+c.id, "", map[string]any{"total": total}).code)
}

// addPackets sends a list of packets once: p<n>, each worth n. A
// list in doubt is first sent again unchanged.
func (o *operator) addPackets(ctx context.Context, c *campaign, n int64) (done bool, r reply) {
	c.mu.Lock()
	if c.doubt == c.sure {
		c.doubt = c.sure + n
		c.release = time.Time{}
		if c.has(withWaves) && (c.sure == 0 || o.r.IntN(2) == 0) {
			c.release = time.Now().Add(ms(between(o.r, 200, 1500)))
		}
	}
	from := c.sure
	upto := c.doubt
	release := c.release
	c.mu.Unlock()
	var packets []map[string]any
	for i := from + 1; i <= upto; i++ {
		packets = append(packets, map[string]any{"id": fmt.Sprintf("p%d", i), "amount": i})
	}
	body := map[string]any{"packets": packets}
	if !release.IsZero() {
		body["release_at"] = models.NewTime(release)
	}
	answered := c.change(&c.totals, upto)
	r = o.send(ctx, http.MethodPost, o.base()+"/v1/campaigns/"+c.id+"/packets", "", body)
	if answered(r.code); r.code != "" {
		return false, r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sure = upto
	c.batches = append(c.batches, body)
	return true, r
}

// addAgain resends every answered list of packets, as the sender
// does after a restore of MySQL: missing ones are added.
func (o *operator) addAgain(ctx context.Context, c *campaign) error {
	c.mu.Lock()
	batches := slices.Clone(c.batches)
	c.mu.Unlock()
	for _, body := range batches {
		err := o.insist(ctx, http.MethodPost, "/v1/campaigns/"+c.id+"/packets", body)
		if errors.Is(err, errRefused) && c.closing.Load() {
			return nil // it was closed before, and has them
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insistPackets retries until the packets are added.
func (o *operator) insistPackets(ctx context.Context, c *campaign, n int64) error {
	for deadline := time.Now().Add(healWithin); ; wait(ctx, 50*time.Millisecond) {
		done, r := o.addPackets(ctx, c, n)
		switch {
		case done:
			return nil
		case r.certain():
			return fmt.Errorf("%w: packets of %s: %s", errRefused, c.id, r.body)
		case time.Now().After(deadline), ctx.Err() != nil:
			return fmt.Errorf("%w: packets of %s: %s %s", errBroken, c.id, r.code, r.body)
		}
	}
}

// unlimit removes a user's limits, retrying until done.
func (o *operator) unlimit(ctx context.Context, c *campaign) error {
	if err := o.removeExtra(ctx, c); err != nil {
		return err
	}
	if c.packets || c.perUser == 0 {
		return nil
	}
	answered := c.change(&c.limits, 0)
	if err := o.insist(ctx, http.MethodPatch, "/v1/campaigns/"+c.id, map[string]any{"per_user": 0}); err != nil {
		return err
	}
	answered("")
	return nil
}

// run changes campaigns at random until ctx ends, and closes
// those that are due.
func (o *operator) run(ctx context.Context, all []*campaign) error {
	all = slices.Clone(all)
	for ctx.Err() == nil {
		wait(ctx, ms(between(o.r, 50, 250)))
		i := o.r.IntN(len(all))
		c := all[i]
		var err error
		switch {
		case c.closing.Load():
			all = slices.Delete(all, i, i+1) // never the endless one
			err = o.closeCampaign(ctx, c)
		case c.has(withChanges) || c.has(withWaves):
			done := c.acting(withChanges)
			err = o.changeOne(ctx, c)
			done()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *operator) changeOne(ctx context.Context, c *campaign) error {
	switch {
	case c.has(withChanges) && o.r.IntN(5) == 0:
		return o.pause(ctx, c, ms(between(o.r, 20, 300)))
	case c.perUser > 0 && !c.packets && o.r.IntN(2) == 0:
		limit := between(o.r, 0, 40)
		answered := c.change(&c.limits, limit)
		answered(o.send(ctx, http.MethodPatch, o.base()+"/v1/campaigns/"+c.id, "", map[string]any{"per_user": limit}).code)
	default:
		n := between(o.r, 5, 60)
		if !c.packets && o.r.IntN(5) == 0 {
			n = -n / 2
		}
		o.restock(ctx, c, n)
	}
	return nil
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	_ = sleep.For(ctx, d) // the caller checks ctx
}

func between(r *rand.Rand, least, most int64) int64 { return least + r.Int64N(most-least+1) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
