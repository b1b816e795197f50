package lua_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// step is one thing that happens to a campaign, small enough to be printed and shrunk.
type step struct {
	Kind   string // claim, repeat, adjust, old version, clock, flush
	Claims []ask
	Repeat int // which earlier call is sent again, ids and all

	Total, PerUser, PerDay int64
	Limits                 []models.Limit
	Status                 models.Status
	StartsIn, EndsIn       int // hours from the first moment; 0 is none

	ClockMinutes int // forwards, or back

	Per    models.Per // window to whose end the clock goes
	Before int        // milliseconds before that end
}

type ask struct {
	User, Key, Quantity int // key 0 is none
	Device              int // 0 is none
}

var (
	asks = rapid.Custom(func(t *rapid.T) ask {
		return ask{
			User: rapid.IntRange(0, 3).Draw(t, "user"), Key: rapid.IntRange(0, 9).Draw(t, "key"),
			Quantity: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "quantity"), Device: rapid.SampledFrom([]int{0, 1, 1, 1, 2, 2}).Draw(t, "device"),
		}
	})
	limits = rapid.Custom(func(t *rapid.T) models.Limit {
		l := models.Limit{
			By: rapid.SampledFrom([]string{models.ByUser, "device"}).Draw(t, "by"), Per: rapid.SampledFrom(models.Pers).Draw(t, "per"),
			Max: rapid.Int64Range(1, 5).Draw(t, "max"),
		}
		if l.By == models.ByUser && (l.Per == models.PerAll || l.Per == models.PerDay) { // they have fields of their own
			l.Per = models.PerHour
		}
		return l
	})
	kinds = []string{"claim", "claim", "claim", "claim", "claim", "repeat", "adjust", "old version", "clock", "clock", "boundary", "flush"}
	steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Claims: rapid.SliceOfN(asks, 1, 8).Draw(t, "claims"),
			Repeat: rapid.IntRange(0, 20).Draw(t, "repeat"), Total: rapid.Int64Range(0, 30).Draw(t, "total"),
			PerUser: rapid.Int64Range(0, 9).Draw(t, "per user"), PerDay: rapid.Int64Range(0, 4).Draw(t, "per day"),
			Status: rapid.SampledFrom([]models.Status{"open", "open", "open", "open", "paused", "closed"}).Draw(t, "status"),
			Limits: rapid.SliceOfNDistinct(limits, 0, 4, func(l models.Limit) string { return l.By + string(l.Per) }).Draw(t, "limits"),
			Per:    rapid.SampledFrom(models.Pers[1:]).Draw(t, "per"), Before: rapid.IntRange(0, 1).Draw(t, "before"),
			StartsIn:     rapid.SampledFrom([]int{0, 0, 0, -24, 2}).Draw(t, "starts"),
			EndsIn:       rapid.SampledFrom([]int{0, 0, 1, 1, 100}).Draw(t, "ends"),
			ClockMinutes: rapid.SampledFrom([]int{1, 29, 60, 60, 24 * 60, 13 * 60, 5 * 24 * 60, 20 * 24 * 60, -30, -26 * 60}).Draw(t, "clock"),
		}
	}), 1, 30)
)

// play runs steps on two campaigns of one Redis in turn, each beside its model, and returns the first difference. Two,
// because what belongs to one campaign must not be seen by another.
func play(ctx context.Context, rdb redis.UniversalClient, suffix string, all []step, mutate func(s *lua.Scripts) error) error {
	p := &player{ctx: ctx, rdb: rdb, now: time.Date(2026, 3, 8, 4, 30, 0, 0, time.UTC)} // half an hour before a day of 23
	p.start = p.now
	var err error
	p.s, err = lua.New(rdb, lua.Options{Clock: func() time.Time { return p.now }, ServerClock: func() int64 { return p.now.UnixMilli() }})
	if err == nil && mutate != nil {
		err = mutate(p.s)
	}
	if err != nil {
		return err
	}
	for _, id := range []string{"a" + suffix, "b" + suffix} {
		if err := p.open(id); err != nil {
			return err
		}
	}
	for i, one := range all {
		if err := p.play(one, p.games[i%len(p.games)]); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return p.checkEvents()
}

type player struct {
	ctx        context.Context //nolint:containedctx // of the test
	rdb        redis.UniversalClient
	s          *lua.Scripts
	start, now time.Time
	games      []*game
}

type game struct {
	meta lua.Meta
	m    *model
	sent [][]lua.ClaimRequest
}

func (p *player) open(id string) error {
	c := models.Campaign{ID: id, Kind: models.KindCoupon, Status: models.StatusOpen, Total: 12, PerUser: 5, PerUserPerDay: 3, TimeZone: "America/New_York", Version: 3, Epoch: 1}
	c.Limits = models.Limits{{By: "device", Per: models.PerDay, Max: 6}, {By: models.ByUser, Per: models.PerHour, Max: 4}}
	meta, err := p.s.MetaOf(&c)
	if err != nil {
		return err
	}
	p.games = append(p.games, &game{meta: meta, m: newModel(c, meta.Location)})
	_, err = p.s.Load(p.ctx, &c)
	return err
}

func (p *player) play(one step, g *game) error {
	switch one.Kind {
	case "claim":
		return p.claim(g, requests(one.Claims))
	case "repeat":
		if len(g.sent) > 0 {
			return p.claim(g, g.sent[one.Repeat%len(g.sent)])
		}
	case "adjust", "old version":
		return p.adjust(one, g)
	case "clock":
		p.now = p.now.Add(time.Duration(one.ClockMinutes) * time.Minute)
	case "boundary":
		_, end := window(one.Per, p.now, g.m.zone)
		p.now = end.Add(-time.Duration(one.Before) * time.Millisecond)
	case "flush":
		return p.rdb.ScriptFlush(p.ctx).Err()
	}
	return nil
}

func requests(all []ask) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, len(all))
	for i, a := range all {
		reqs[i] = lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: fmt.Sprint("user", a.User), Quantity: int64(a.Quantity)}
		if a.Device > 0 {
			reqs[i].Subjects = models.Subjects{"device": fmt.Sprint("device", a.Device), "card": "1"}
		}
		if a.Key > 0 {
			reqs[i].Key = fmt.Sprint("key", a.Key)
		}
	}
	return reqs
}

func (p *player) claim(g *game, reqs []lua.ClaimRequest) error {
	g.sent = append(g.sent, reqs)
	replies, remaining, err := p.s.Claim(p.ctx, g.meta, reqs)
	if err != nil {
		return err
	}
	for i, req := range reqs {
		if want := g.m.claim(req, p.now); !reflect.DeepEqual(want, replies[i]) {
			return fmt.Errorf("claim %d of %d, %+v: %+v, want %+v", i+1, len(reqs), req, replies[i], want)
		}
	}
	if want := max(0, g.m.c.Total-g.m.taken); remaining != want {
		return fmt.Errorf("remaining is %d, want %d", remaining, want)
	}
	return nil
}

func (p *player) adjust(one step, g *game) error {
	c := g.m.c
	c.Version++
	if one.Kind == "old version" {
		c.Version -= 2
	}
	c.Total, c.PerUser, c.PerUserPerDay, c.LowStockAt = one.Total, one.PerUser, one.PerDay, one.Total/2
	c.Limits = slices.Clone(one.Limits)
	c.Limits.ContinueFrom(g.m.c.Limits, c.Version, 1)
	c.StartsAt, c.EndsAt = p.inHours(one.StartsIn), p.inHours(one.EndsIn)
	if c.Status != models.StatusClosed { // which is for ever
		c.Status = one.Status
	}
	g.m.adjust(c, p.now)
	st, err := p.s.Adjust(p.ctx, &c, nil)
	if err != nil {
		return err
	}
	return g.m.agrees(st)
}

func (p *player) inHours(h int) *time.Time {
	if h == 0 {
		return nil
	}
	at := p.start.Add(time.Duration(h) * time.Hour)
	return &at
}

// announcementFits checks an event about the stock: it follows the claim that crossed.
func announcementFits(e *models.Event, last int64) error {
	if e.Seq != last || e.Remaining == nil || *e.Remaining < 0 || e.Type == models.EventCampaignSoldOut && *e.Remaining != 0 {
		return fmt.Errorf("event %+v after seq %d", e, last)
	}
	return nil
}

// checkEvents holds states and the stream against the models: each claim once, in the order of its seq.
func (p *player) checkEvents() error {
	seqs := map[string]int64{}
	entries, err := p.rdb.XRange(p.ctx, lua.StreamKey(0), "-", "+").Result()
	if err != nil {
		return err
	}
	claims := map[string]models.Claim{}
	for _, g := range p.games {
		for _, claim := range g.m.first {
			claims[claim.ID] = claim
		}
	}
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		if err != nil {
			return err
		}
		if e.IsOfLot() {
			continue
		}
		if e.Type != models.EventClaimAccepted {
			if err := announcementFits(&e, seqs[e.CampaignID]); err != nil {
				return err
			}
			continue
		}
		c, ok := claims[e.ID]
		if !ok || e.CampaignID != c.CampaignID || e.UserID != c.UserID || e.Quantity != c.Quantity || e.Seq != c.Seq || e.At != c.ClaimedAt || e.Seq != seqs[c.CampaignID]+1 {
			return fmt.Errorf("event %+v after seq %d, claim %+v", e, seqs[c.CampaignID], c)
		}
		seqs[c.CampaignID] = e.Seq
	}
	for _, g := range p.games {
		if seqs[g.m.c.ID] != g.m.seq {
			return fmt.Errorf("the last event of %s is %d, want %d", g.m.c.ID, seqs[g.m.c.ID], g.m.seq)
		}
		st, err := p.s.State(p.ctx, g.m.c.ID)
		if err != nil {
			return err
		}
		if err := g.m.agrees(st); err != nil {
			return err
		}
	}
	return p.rdb.Del(p.ctx, lua.StreamKey(0)).Err() // the next game starts with its own events
}

// Whatever happens to a campaign, in any order, it does what the model does.
func TestScriptIsTheModel(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for round := range testenv.Pick(2, 100) {
			games := 0
			rapid.Check(t, func(r *rapid.T) {
				all := steps.Draw(r, "steps")
				games++
				require.NoError(r, rdb.Del(t.Context(), lua.StreamKey(0)).Err())
				if err := play(t.Context(), rdb, fmt.Sprintf("-%d-%d", round, games), all, nil); err != nil {
					r.Fatal(err)
				}
			})
		}
	})
}

// Controls: claim.lua with one mistake each. The property above must catch every one of them.
func TestModelCatchesMutants(t *testing.T) {
	t.Parallel()
	mutants := []struct{ name, old, new string }{
		{"one too many", "if quantity > remaining then", "if quantity > remaining + 1 then"},
		{"the last unit is never sold", "if quantity > remaining then", "if quantity >= remaining then"},
		{"one too many for a user", "units > limit.most then", "units > limit.most + 1 then"},
		{"a user's last unit is refused", "units > limit.most then", "units >= limit.most then"},
		{"days never end", "user_limits[2].window = day", "user_limits[2].window = 0"},
		{"the week begins a day late", "w = math.floor((day + 3) / 7)", "w = math.floor((day + 2) / 7)"},
		{"the hour begins a second late", "math.floor((now_ms - day_start_ms) / 3600000)", "math.floor((now_ms - day_start_ms - 1000) / 3600000)"},
		{"hours are those of utc", "h = day * 100 + math.floor((now_ms - day_start_ms) / 3600000)", "h = math.floor(now_ms / 5400000)"},
		{"months never end", "m = y * 12 + m, a = 0", "m = 1, a = 0"},
		{"months begin a day late", "date_of(day)\n  local window", "date_of(day - 1)\n  local window"},
		{"all is a day", "m = y * 12 + m, a = 0", "m = y * 12 + m, a = day"},
		{"earlier claims count under a new limit's time", "if now_ms >= limit.from then", "if now_ms > limit.from + 60000 then"},
		{"a claim without a limited subject is let through", "if field == '' then return nil, 1400 + limits[1].number end", "if field == '' then return taken_by end"},
		{"claims of a device in one call don't see each other", "user_here[field] or limits.records[i]", "limits.records[i]"},
		{"the time of a campaign goes back with the clock", "if seq > 0 and now_ms <", "if seq < 0 and now_ms <"},
		{"users counted by campaign only", "local user = ARGV[users + i]\n", "local user = 'all'\n"},
		{"claims of a user in one call don't see each other", "user_here[user] or records[i]", "records[i]"},
		{"claims of a key in one call don't see each other", "known[i] or key_here[key]", "known[i]"},
		{"the other body is replayed", "elseif sub(claim, 1, 8) == sub(head, 1, 8) then", "elseif true then"},
		{"a campaign's end is open", "now_ms >= ends_at_ms then", "now_ms > ends_at_ms then"},
		{"paused goes on", "campaign_refusal = 3", "campaign_refusal = nil"},
		{"retries are not known", "redis.call('HSET', keys_key, unpack(new_keys))", "redis.call('HSET', keys_key, 'x', 'x')"},
		{"seq skips", "    seq = seq + 1\n", "    seq = seq + quantity\n"},
		{"stock counts claims, not units", "    taken = taken + quantity\n", "    taken = taken + 1\n"},
		{"an event is dropped", "for i = 1, made do\n  local added = redis.pcall('XADD'", "for i = 2, made do\n  local added = redis.pcall('XADD'"},
	}
	for _, mutant := range mutants {
		t.Run(mutant.name, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t, "redis://"+miniredis.RunT(t).Addr())
			err := caught(t, rdb, mutant.old, mutant.new)
			require.Error(t, err, "nothing noticed")
			require.NotErrorIs(t, err, lua.ErrUnavailable, "a script that does not run is no mutant")
		})
	}
	require.Error(t, new(lua.Scripts).Mutate("no such text", ""), "a mutant that changes nothing is no mutant")
}

// boundaries are games that claim on both sides of the end of each window. Steps go to two campaigns in turn: the first step of each pair
// is for the other one.
func boundaries() (games [][]step) {
	one := step{Kind: "claim", Claims: []ask{{User: 1, Quantity: 1, Device: 1}}}
	for _, per := range models.Pers {
		end := per
		if per == models.PerAll {
			end = models.PerDay
		}
		var game []step
		for _, s := range []step{
			{Kind: "adjust", Total: 30, Status: models.StatusOpen, Limits: []models.Limit{{By: "device", Per: per, Max: 1}}},
			one, one,
			{Kind: "boundary", Per: end, Before: 1}, one,
			{Kind: "boundary", Per: end}, one, one,
			{Kind: "boundary", Per: models.PerMonth}, one, {Kind: "boundary", Per: end, Before: 1}, one,
			{Kind: "boundary", Per: end, Before: 1}, one, one, {Kind: "clock", ClockMinutes: 24 * 60}, one,
		} {
			game = append(game, step{}, s)
		}
		games = append(games, game)
	}
	return games
}

// caught plays games with a mutant until one differs from the model, and returns how.
func caught(t *testing.T, rdb redis.UniversalClient, text, instead string) error {
	t.Helper()
	games := boundaries()
	for seed := range 500 {
		var broken error
		if seed >= len(games) {
			games = append(games, steps.Example(seed))
		}
		err := play(t.Context(), rdb, fmt.Sprint("-", seed), games[seed], func(s *lua.Scripts) error {
			broken = s.Mutate(text, instead)
			return broken
		})
		require.NoError(t, broken, "not a mutant")
		if err != nil {
			t.Logf("game %d: %v", seed, err)
			return err
		}
	}
	return nil
}
