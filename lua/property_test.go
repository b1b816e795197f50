package lua_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// step is one thing that happens to a campaign,
// small enough to print and to shrink.
type step struct {
	Kind   string // see kinds
	Claims []ask
	// which earlier call is sent again, with its
	// ids, or the first of the released claims
	Repeat int

	Total, PerUser, PerDay int64
	Limits                 []models.Limit
	Status                 models.Status
	StartsIn, EndsIn       int // hours from the first moment; 0 is none

	ClockMinutes int // forwards, or backwards
	SkewSeconds  int // of the process's clock from then on

	Per    models.Per // the clock is set near the end of this window
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
		// they have fields of their own
		if l.By == models.ByUser && (l.Per == models.PerAll || l.Per == models.PerDay) {
			l.Per = models.PerHour
		}
		return l
	})
	kinds = []string{
		"claim", "claim", "claim", "claim", "claim", "repeat", "adjust", "old version", "clock", "clock", "boundary", "flush",
		"release", "release", "reload",
	}
	steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Claims: rapid.SliceOfN(asks, 1, 8).Draw(t, "claims"),
			Repeat: rapid.IntRange(0, 20).Draw(t, "repeat"), Total: rapid.Int64Range(0, 30).Draw(t, "total"),
			PerUser: rapid.Int64Range(0, 9).Draw(t, "per user"), PerDay: rapid.Int64Range(0, 4).Draw(t, "per day"),
			Status: rapid.SampledFrom([]models.Status{"open", "open", "open", "open", "paused", "closed"}).Draw(t, "status"),
			Limits: rapid.SliceOfNDistinct(limits, 0, 4, func(l models.Limit) string { return l.By + string(l.Per) }).Draw(t, "limits"),
			Per:    rapid.SampledFrom(models.Pers[1:]).Draw(t, "per"), Before: rapid.IntRange(0, 1).Draw(t, "before"),
			StartsIn:     rapid.SampledFrom([]int{0, 0, 0, -24, 2, before1970}).Draw(t, "starts"),
			EndsIn:       rapid.SampledFrom([]int{0, 0, 0, 1, 1, 100, before1970}).Draw(t, "ends"),
			ClockMinutes: rapid.SampledFrom([]int{1, 29, 60, 60, 24 * 60, 13 * 60, 5 * 24 * 60, 20 * 24 * 60, -30, -20 * 60}).Draw(t, "clock"),
			SkewSeconds:  rapid.SampledFrom([]int{0, 90, -90, 23 * 3600, -23 * 3600}).Draw(t, "skew"),
		}
	}), 1, 30)
)

// before1970 is in hours from any start of a game.
const before1970 = -70 * 365 * 24

// midnights are days with unusual ends: the first moment of a date in a zone.
var midnights = []struct{ name, zone, starts string }{
	{"plain", "UTC", "2026-03-06T00:00:00Z"},
	{"New York, the night before summer time", "America/New_York", "2026-03-08T05:00:00Z"},
	{"New York, after a day of 23 hours", "America/New_York", "2026-03-09T04:00:00Z"},
	{"New York, the night before winter time", "America/New_York", "2026-11-01T04:00:00Z"},
	{"New York, after a day of 25 hours", "America/New_York", "2026-11-02T05:00:00Z"},
	{"Sao Paulo, midnight skipped", "America/Sao_Paulo", "2018-11-04T03:00:00Z"},
	{"Sao Paulo, an hour before midnight twice", "America/Sao_Paulo", "2018-02-18T03:00:00Z"},
	{"Beirut, midnight skipped", "Asia/Beirut", "2026-03-28T22:00:00Z"},
	{"Beirut, an hour before midnight twice", "Asia/Beirut", "2026-10-24T22:00:00Z"},
	{"Havana, midnight skipped", "America/Havana", "2026-03-08T05:00:00Z"},
	{"Havana, midnight twice", "America/Havana", "2026-11-01T04:00:00Z"},
	{"Apia, a whole day skipped", "Pacific/Apia", "2011-12-30T10:00:00Z"},
	{"Kathmandu, a quarter of an hour off", "Asia/Kathmandu", "2026-03-05T18:15:00Z"},
	{"Lord Howe, half an hour of summer time", "Australia/Lord_Howe", "2026-04-04T13:00:00Z"},
}

// play runs steps on two campaigns of one Redis alternately, each with
// its model. It returns the first difference. There are two, as a
// campaign must not see what belongs to another.
func play(
	ctx context.Context, rdb redis.UniversalClient, suffix string, midnight int, all []step, mutate func(s *lua.Scripts) error,
) error {
	starts, err := time.Parse(time.RFC3339, midnights[midnight].starts)
	if err != nil {
		return err
	}
	p := &player{ctx: ctx, rdb: rdb, zone: midnights[midnight].zone, now: starts.UTC().Add(-30 * time.Minute)}
	p.start, p.latest = p.now, p.now
	p.s, err = lua.New(rdb, lua.Options{Clock: p.clock, ServerClock: func() int64 { return p.now.UnixMilli() }})
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
	if from, _ := window(models.PerDay, starts, p.games[0].m.zone); !from.Equal(starts) {
		return fmt.Errorf("%s begins at %s", midnights[midnight].name, from)
	}
	for i, one := range all {
		if err := p.play(one, p.games[i%len(p.games)]); err != nil {
			return fmt.Errorf("%s, step %d: %w", midnights[midnight].name, i, err)
		}
	}
	return p.checkEvents()
}

type player struct {
	ctx        context.Context //nolint:containedctx // of the test
	rdb        redis.UniversalClient
	s          *lua.Scripts
	zone       string
	start, now time.Time
	latest     time.Time // that Redis' clock showed
	skew       time.Duration
	games      []*game
}

// clock is the process's. Its table of days covers a wrong clock of
// either server, not of both.
func (p *player) clock() time.Time {
	if p.now.Before(p.latest) {
		return p.now
	}
	return p.now.Add(p.skew)
}

func (p *player) setNow(now time.Time) {
	if earliest := p.latest.Add(-20 * time.Hour); now.Before(earliest) {
		now = earliest
	}
	p.now = now
	if now.After(p.latest) {
		p.latest = now
	}
}

type game struct {
	meta lua.Meta
	m    *model
	sent [][]lua.ClaimRequest
}

func (p *player) open(id string) error {
	c := models.Campaign{
		ID: id, Kind: models.KindCoupon, Status: models.StatusOpen, Total: 12, PerUser: 5, PerUserPerDay: 3, TimeZone: p.zone,
		HoldForMs: 90_000, Version: 3, Epoch: 1,
	}
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
	case "release":
		return p.release(one, g)
	case "reload":
		return p.reload(g)
	case "clock":
		p.skew = time.Duration(one.SkewSeconds) * time.Second
		p.setNow(p.now.Add(time.Duration(one.ClockMinutes) * time.Minute))
	case "boundary":
		_, end := window(one.Per, p.now, g.m.zone)
		p.setNow(end.Add(-time.Duration(one.Before) * time.Millisecond))
	case "flush":
		return p.rdb.ScriptFlush(p.ctx).Err()
	}
	return nil
}

func requests(all []ask) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, len(all))
	for i, a := range all {
		reqs[i] = lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: oddUsers[a.User], Quantity: int64(a.Quantity)}
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
	if want := g.m.remaining(); remaining != want {
		return fmt.Errorf("remaining is %d, want %d", remaining, want)
	}
	return nil
}

// release releases up to three claims in a call, the first of them twice.
func (p *player) release(one step, g *game) error {
	if len(g.m.past) == 0 {
		return nil
	}
	var releases []lua.Release
	var want []lua.Released
	for i := range min(3, len(g.m.past)) {
		at := (one.Repeat + i) % len(g.m.past)
		past := &g.m.past[at]
		releases = append(releases, releaseOf(past.req, past.claim))
		want = append(want, g.m.release(at))
	}
	releases, want = append(releases, releases[0]), append(want, lua.ReleasedBefore)
	got, err := p.s.Release(p.ctx, &g.m.c, releases)
	if err == nil && !slices.Equal(got, want) {
		return fmt.Errorf("releases are %v, want %v", got, want)
	}
	return err
}

// reload loads a campaign from its claims. Its counts must stay the same.
func (p *player) reload(g *game) error {
	before, err := p.counts(g)
	if err != nil {
		return err
	}
	if err := p.load(g); err != nil {
		return err
	}
	after, err := p.counts(g)
	if err == nil && !maps.Equal(before, after) {
		return fmt.Errorf("counts are %v after a load, and were %v", after, before)
	}
	return err
}

// counts are the parts of subjects' records
// that matter: of a limit in force, and not 0.
func (p *player) counts(g *game) (map[string]bool, error) {
	records, err := p.rdb.HGetAll(p.ctx, p.s.KeysOf(g.m.c.ID).Users).Result()
	parts := map[string]bool{}
	for field, record := range records {
		for part := range strings.SplitSeq(record, ";") {
			tag, _, isTagged := strings.Cut(part, ".")
			isIn := slices.ContainsFunc(g.m.c.Limits, func(l models.Limit) bool { return fmt.Sprint(string(l.Per[:1]), l.Added) == tag })
			if part != "" && !strings.HasSuffix(part, ":0") && (isIn || !isTagged) {
				parts[field+" "+part] = true
			}
		}
	}
	return parts, err
}

func (p *player) load(g *game) error {
	g.m.reload(p.now)
	_, errs := p.s.Fence(p.ctx, "loader", lua.FenceAny, []string{g.m.c.ID})
	st, err := p.s.NewStaging(p.ctx, &g.m.c, 1)
	if err := errors.Join(err, errs[0]); err != nil {
		return err
	}
	st.Token = "loader"
	st.Seq = int64(len(g.m.past))
	_, st.Sold, _ = g.m.units()
	for i := range g.m.past {
		past := &g.m.past[i]
		record := pastOf(past.req, past.claim.Seq, past.claim.ClaimedAt.Time)
		record.Live = !past.released
		if err := st.Add(p.ctx, &record); err != nil {
			return err
		}
	}
	return st.Finish(p.ctx)
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
	if c.Status != models.StatusClosed { // which is final
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

// announcementFits checks an event about the stock, which follows the
// claim that crossed the line.
func announcementFits(e *event.Event, last int64) error {
	if e.Seq != last || e.Remaining == nil || *e.Remaining < 0 || e.Type == event.CampaignSoldOut && *e.Remaining != 0 {
		return fmt.Errorf("event %+v after seq %d", e, last)
	}
	return nil
}

// checkEvents compares states and the stream with the models. Each claim and
// each release occurs once, and claims are in the order of their seq.
func (p *player) checkEvents() error {
	entries, err := p.rdb.XRange(p.ctx, lua.StreamKey(0), "-", "+").Result()
	if err != nil {
		return err
	}
	seqs, claims, released := map[string]int64{}, map[string]models.Claim{}, map[string]int{}
	for _, g := range p.games {
		for _, past := range g.m.past {
			claims[past.claim.ID] = past.claim
			if past.released {
				released[past.claim.ID]++
			}
		}
	}
	for _, entry := range entries {
		e, err := event.Decode([]byte(entry.Values["payload"].(string)))
		if err != nil {
			return err
		}
		switch c := claims[e.ID]; {
		case e.IsOfLot():
		case e.Type == event.ClaimReleased:
			released[e.ClaimID]--
		case e.Type != event.ClaimAccepted:
			if err := announcementFits(&e, seqs[e.CampaignID]); err != nil {
				return err
			}
		case e.CampaignID != c.CampaignID || e.UserID != c.UserID || e.Quantity != c.Quantity || e.Seq != c.Seq ||
			e.At != c.ClaimedAt || e.Seq != seqs[c.CampaignID]+1:
			return fmt.Errorf("event %+v after seq %d, claim %+v", e, seqs[c.CampaignID], c)
		default:
			seqs[c.CampaignID] = e.Seq
		}
	}
	for id, missing := range released {
		if missing != 0 {
			return fmt.Errorf("%d releases of %s are missing", missing, id)
		}
	}
	for _, g := range p.games {
		if seqs[g.m.c.ID] != int64(len(g.m.past)) {
			return fmt.Errorf("the last event of %s is %d, want %d", g.m.c.ID, seqs[g.m.c.ID], len(g.m.past))
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

func TestScriptIsTheModel(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		games := boundaries()
		for midnight := range midnights {
			for i, game := range games {
				if isReal(t) || i == midnight%len(games) { // the embedded one is slow
					require.NoError(t, play(t.Context(), rdb, fmt.Sprintf("-end-%d-%d", midnight, i), midnight, game, nil))
				}
			}
		}
		for round := range testenv.Pick(1, 100) {
			games := 0
			rapid.Check(t, func(r *rapid.T) {
				midnight := rapid.IntRange(0, len(midnights)-1).Draw(r, "midnight")
				all := steps.Draw(r, "steps")
				games++
				require.NoError(r, rdb.Del(t.Context(), lua.StreamKey(0)).Err())
				if err := play(t.Context(), rdb, fmt.Sprintf("-%d-%d", round, games), midnight, all, nil); err != nil {
					r.Fatal(err)
				}
			})
		}
	})
}

// Controls: scripts with one mistake each.
// The property above must catch each one.
func TestModelCatchesMutants(t *testing.T) {
	t.Parallel()
	mutants := []struct{ name, old, new string }{
		{"one too many", "if quantity > remaining then", "if quantity > remaining + 1 then"},
		{"one too many for a user", "units > limit.most then", "units > limit.most + 1 then"},
		{"days never end", "user_limits[2].window = day", "user_limits[2].window = 0"},
		{"the week begins a day late", "w = math.floor((day + 3) / 7)", "w = math.floor((day + 2) / 7)"},
		{"hours are those of utc", "h = day * 100 + math.floor((now_ms - day_start_ms) / 3600000)", "h = math.floor(now_ms / 5400000)"},
		{"months begin a day late", "date_of(day)\n  local window", "date_of(day - 1)\n  local window"},
		{"all is a day", "m = y * 12 + m, a = 0", "m = y * 12 + m, a = day"},
		{"earlier claims count under a new limit's time", "if now_ms >= limit.from then", "if now_ms > limit.from + 60000 then"},
		{"a claim without a limited subject is let through", "if field == '' then return nil, 1400 + limits[1].number end", "if field == '' then return taken_by end"},
		{"the time of a campaign goes back with the clock", "if seq > 0 and now_ms <", "if seq < 0 and now_ms <"},
		{"users counted by campaign only", "local user = ARGV[users + i]\n", "local user = 'all'\n"},
		{"claims of a user in one call don't see each other", "user_here[user] or records[i]", "records[i]"},
		{"claims of a key in one call don't see each other", "known[i] or key_here[key]", "known[i]"},
		{"the other body is replayed", "elseif sub(claim, 1, 8) == sub(head, 1, 8) then", "elseif true then"},
		{"a campaign's end is open", "now_ms >= ends_at_ms then", "now_ms > ends_at_ms then"},
		{"retries are not known", "redis.call('HSET', keys_key, unpack(new_keys))", "redis.call('HSET', keys_key, 'x', 'x')"},
		{"seq skips", "    seq = seq + 1\n", "    seq = seq + quantity\n"},
		{"stock counts claims, not units", "    taken = taken + quantity\n", "    taken = taken + 1\n"},
		{"a released quota is not returned", "counts[tag] = counts[tag] - quantity", ""},
		{"a later window gets the quota", "and windows[tag] == (windows_of_claim[string.sub(tag, 1, 1)] or 0) then", "then"},
		{"a released claim that was not counted is", "at_ms >= limit.from and ", ""},
		{"subjects get nothing back", "for field, left in pairs(after) do", "for field, left in pairs({[user] = after[user]}) do"},
		{"releases of a user in one call don't see each other", "user_here[user] or users[i]", "users[i]"},
		{"a release is made twice", "if record == whole .. ':r' then return 2 end", "record = whole"},
		{"stock does not come back", "taken = taken - quantity", ""},
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

// boundaries are games that claim on both sides of the end of each
// window, and of the time from which a limit counts.
func boundaries() (games [][]step) {
	one := step{Kind: "claim", Claims: []ask{{User: 1, Quantity: 1, Device: 1}}}
	games = append(games, ofOne(
		step{Kind: "adjust", Total: 30, Status: models.StatusOpen}, one,
		step{Kind: "adjust", Total: 30, Status: models.StatusOpen, Limits: []models.Limit{{By: "device", Per: models.PerAll, Max: 2}}},
		one, step{Kind: "reload"}, one, step{Kind: "release"}, one, one,
	))
	for _, per := range models.Pers {
		end := per
		if per == models.PerAll {
			end = models.PerDay
		}
		games = append(games, ofOne(
			step{Kind: "adjust", Total: 30, Status: models.StatusOpen, Limits: []models.Limit{{By: "device", Per: per, Max: 1}}},
			one, one,
			step{Kind: "boundary", Per: end, Before: 1}, one,
			step{Kind: "boundary", Per: end}, one, one,
			step{Kind: "boundary", Per: models.PerMonth}, one, step{Kind: "boundary", Per: end, Before: 1}, one,
			step{Kind: "boundary", Per: end, Before: 1}, one, one, step{Kind: "clock", ClockMinutes: 24 * 60}, one,
			step{Kind: "reload"}, one, step{Kind: "release"}, one,
		))
	}
	hourly := models.Limit{By: "device", Per: models.PerHour, Max: 9}
	games = append(games, ofOne( // a load counts an earlier claim for one of two limits
		step{Kind: "adjust", Total: 30, Status: models.StatusOpen, Limits: []models.Limit{hourly}}, one,
		step{Kind: "adjust", Total: 30, Status: models.StatusOpen, Limits: []models.Limit{hourly, {By: "device", Per: models.PerAll, Max: 2}}},
		step{Kind: "reload"}, one,
	))
	return append(games, ofOne( // the last moment of a campaign
		step{Kind: "adjust", Total: 30, Status: models.StatusOpen, EndsIn: 1}, step{Kind: "clock", ClockMinutes: 60}, one,
	))
}

func ofOne(steps ...step) (game []step) {
	for _, s := range steps {
		game = append(game, step{}, s)
	}
	return game
}

// caught plays games with a mutant until one differs
// from the model. It returns the difference.
func caught(t *testing.T, rdb redis.UniversalClient, text, instead string) error {
	t.Helper()
	games := boundaries()
	for seed := range 500 {
		var broken error
		if seed >= len(games) {
			games = append(games, steps.Example(seed))
		}
		err := play(t.Context(), rdb, fmt.Sprint("-", seed), (seed+1)%len(midnights), games[seed], func(s *lua.Scripts) error {
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
