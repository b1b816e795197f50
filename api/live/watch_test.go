package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api/live"
	"dibs/api/workers"
	"dibs/internal/caller"
	"dibs/internal/softstate"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type rig struct {
	*live.Sampler

	fake    *apitest.Fake
	workers *workers.Group
}

func newRig(t *testing.T, campaigns ...models.Campaign) *rig {
	t.Helper()
	r := &rig{fake: apitest.NewFake(campaigns...), workers: &workers.Group{}}
	r.Sampler = live.New(live.Config{
		Redis: r.fake, Books: r.fake, Workers: r.workers, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		r.Stop()
		require.NoError(t, r.workers.Stop(context.Background()))
	})
	return r
}

func (r *rig) claim(id string, n int) {
	meta, _ := r.fake.Load(context.Background(), id)
	for range n {
		_, _, _ = r.fake.Sums(meta, []lua.ClaimRequest{{ID: uuid.New(), UserID: uuid.NewString(), Quantity: 1}})
	}
}

func (r *rig) reads() int {
	r.fake.Mu.Lock()
	defer r.fake.Mu.Unlock()
	return r.fake.StateReads
}

type stream struct {
	header http.Header
	status int
	lines  chan string
	leave  context.CancelFunc
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) { s.status = status }

func (s *stream) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		s.lines <- line
	}
	return len(b), nil
}

func (s *stream) Flush() {}

func as(r *http.Request, actor string) *http.Request {
	return r.WithContext(caller.With(r.Context(), &caller.Caller{Actor: actor}))
}

// open watches a campaign; "" is all.
func (r *rig) open(id string) *stream { return r.openAs(caller.Anonymous, id) }

func (r *rig) openAs(actor, id string) *stream {
	ctx, leave := context.WithCancel(context.Background())
	s := &stream{header: http.Header{}, lines: make(chan string, 10_000), leave: leave}
	req := as(httptest.NewRequestWithContext(ctx, "GET", "/", nil), actor)
	req.SetPathValue("id", id)
	go func() {
		defer close(s.lines)
		switch {
		case id == "":
			s.status = r.GetWatchAll(s, req)
		case actor == withPast:
			s.status = r.GetWatchPast(s, req)
		default:
			s.status = r.GetWatch(s, req)
		}
	}()
	return s
}

// withPast is an actor who gets the past first.
const withPast = "console"

func (s *stream) events(t *testing.T) (events []live.Event) {
	t.Helper()
	synctest.Wait()
	for len(s.lines) > 0 {
		if data, is := strings.CutPrefix(<-s.lines, "data: "); is {
			var e live.Event
			require.NoError(t, json.Unmarshal([]byte(data), &e))
			events = append(events, e)
		}
	}
	return events
}

// pass lets time pass in a synctest bubble, without a real wait.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // see above

func TestAWatcherIsToldOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, models.Campaign{ID: "c", Total: 100, LowStockAt: 70})
		watching := r.open("c")
		first := watching.events(t)
		require.Len(t, first, 1, "at once")
		require.EqualValues(t, 100, first[0].Remaining)
		require.Zero(t, first[0].AcceptedPerS)

		r.claim("c", 40)
		r.change(func(fake *apitest.Fake) { fake.Campaigns["c"].Lag = 15 })
		require.NoError(t, r.fake.CountAnswers(t.Context(), []softstate.Answers{{CampaignID: "c", Counts: map[string]int64{"user_limit": 7}}}))
		pass(live.Every)
		next := watching.events(t)
		require.Len(t, next, 1)
		e := next[0]
		require.Equal(t, "c", e.CampaignID)
		require.Equal(t, []int64{100, 60, 40, 25, 15}, []int64{e.Total, e.Remaining, e.Claimed, e.Synced, e.Backlog})
		require.InDelta(t, 40, e.AcceptedPerS, 0)
		require.Equal(t, map[string]float64{"user_limit": 7}, e.RefusedPerS)
		require.True(t, e.Low)
		require.Zero(t, e.Drift)
		require.Zero(t, e.BacklogAgeMs, "seen for the first time")

		pass(3 * live.Every)
		later := watching.events(t)
		require.Len(t, later, 3)
		require.Zero(t, later[2].AcceptedPerS)
		require.Empty(t, later[2].RefusedPerS)
		require.EqualValues(t, 3000, later[2].BacklogAgeMs)
		watching.leave()
		synctest.Wait()
		require.Equal(t, live.Streamed, watching.status)
	})
}

// Claims that Redis lost never get a row. They are not on their way.
func TestLostClaimsAreNoBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, models.Campaign{ID: "c", Total: 100})
		r.claim("c", 40)
		r.change(func(fake *apitest.Fake) { fake.Campaigns["c"].Lost = 5 })
		watching := r.open("c")
		told := func() []int64 {
			events := watching.events(t)
			return []int64{events[len(events)-1].Backlog, events[len(events)-1].BacklogAgeMs}
		}
		pass(3 * live.Every)
		require.Equal(t, []int64{0, 0}, told())
		r.claim("c", 10)
		r.change(func(fake *apitest.Fake) { fake.Campaigns["c"].Lag = 10 })
		pass(2 * live.Every)
		require.Equal(t, []int64{10, 1000}, told(), "of the claims since")
		watching.leave()
	})
}

func TestOneSampleServesAllWatchersAndNobodyCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 5), apitest.Coupon("b", 5))
		var all []*stream
		for range 100 {
			all = append(all, r.open("a"), r.open(""))
		}
		pass(live.Every)
		for _, s := range all {
			require.NotEmpty(t, s.events(t), "within a second")
		}
		before := r.reads()
		pass(10 * live.Every)
		for i, s := range all {
			require.Len(t, s.events(t), 10+10*(i%2), "one campaign, or both")
		}
		require.Equal(t, 20, r.reads()-before, "two campaigns, ten seconds")
		for _, s := range all {
			s.leave()
		}
		pass(2 * live.Every)
		before = r.reads()
		pass(time.Minute)
		require.Equal(t, before, r.reads(), "no one watches")
		require.NotEmpty(t, r.open("b").events(t), "and the sampler starts again")
	})
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 5))
		refused := func(actor string) {
			synctest.Wait()
			w := httptest.NewRecorder()
			require.Equal(t, 503, r.GetWatchAll(w, as(httptest.NewRequest(http.MethodGet, "/", nil), actor)))
			apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "too_many_watchers")
		}
		first := r.openAs("shop", "a")
		for range live.WatchersOfActorMax - 1 {
			r.openAs("shop", "")
		}
		refused("shop")
		require.Len(t, r.openAs("viewer", "a").events(t), 1, "another actor has watchers of its own")
		first.leave()
		synctest.Wait()
		require.Len(t, r.openAs("shop", "a").events(t), 1, "one left, one more may come")

		for range live.WatchersMax - live.WatchersOfActorMax - 1 {
			r.openAs(caller.Anonymous, "") // without tokens, all actors are the same
		}
		refused("another")
		refused(caller.Anonymous)
	})
}

func TestServersThatAreAwayAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 50))
		watching := r.open("a")
		require.Len(t, watching.events(t), 1)
		fail := func(mysql, redis error) {
			r.change(func(fake *apitest.Fake) { fake.Fail, fake.RedisFails = mysql, redis })
		}
		r.claim("a", 10)
		fail(errors.New("mysql is away"), nil)
		pass(2 * live.Every)
		events := watching.events(t)
		require.Len(t, events, 2)
		require.EqualValues(t, 40, events[1].Remaining, "Redis goes on")
		require.EqualValues(t, 10, events[1].Backlog)
		require.EqualValues(t, 2, events[1].At.Sub(events[1].BooksAsOf.Time).Seconds(), "and a watcher sees how old the books are")
		require.Len(t, r.open("a").events(t), 1, "Redis knows the campaign")

		fail(nil, errors.New("redis is away"))
		pass(live.Every)
		synctest.Wait()
		require.Equal(t, "event: problem\n", <-watching.lines)
		require.Contains(t, <-watching.lines, `"code":"unavailable"`)
		fail(nil, nil)
		pass(live.Every)
		events = watching.events(t)
		require.Len(t, events, 1)
		require.Zero(t, events[0].Backlog)
	})
}

func TestACampaignThatIsNotInRedisIsToldFromItsBooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Put(models.Campaign{ID: "new", Total: 9})
		r.fake.Put(models.Campaign{ID: "closed", Total: 9, Status: models.StatusClosed})
		events := r.open("").events(t)
		require.Len(t, events, 1)
		require.Equal(t, models.StatusOpen, events[0].Status)
		require.EqualValues(t, 9, events[0].Remaining)
		require.False(t, events[0].InRedis)
		closed := r.open("closed")
		require.Len(t, closed.events(t), 1, "a watcher of it gets it")
		none := r.open("nowhere")
		synctest.Wait()
		require.Equal(t, http.StatusNotFound, none.status)
		require.Zero(t, r.fake.Loads, "watching loads nothing")
	})
}

func TestAStopEndsWatchersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 5))
		watching := r.open("a")
		require.Len(t, watching.events(t), 1)
		r.Stop()
		synctest.Wait()
		_, open := <-watching.lines
		require.False(t, open)
		late := r.open("a")
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, late.status)
	})
}

func TestSilenceIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		watching := r.open("")
		pass(30 * time.Second)
		synctest.Wait()
		comments := 0
		for len(watching.lines) > 0 {
			if strings.HasPrefix(<-watching.lines, ":") {
				comments++
			}
		}
		require.Greater(t, comments, 2)
	})
}

func TestRefusalsAreCountedForAllProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 5))
		var counted atomic.Int64
		require.True(t, r.Record(func(int) map[string]map[string]int64 {
			return map[string]map[string]int64{"a": {"sold_out": counted.Swap(0)}}
		}))
		counts := func() int64 {
			pass(live.Every)
			synctest.Wait()
			r.fake.Mu.Lock()
			defer r.fake.Mu.Unlock()
			return r.fake.Answers["a"]["sold_out"]
		}
		require.Zero(t, counts())
		counted.Store(3)
		require.EqualValues(t, 3, counts())
		require.EqualValues(t, 3, counts(), "once")
		counted.Store(2)
		require.EqualValues(t, 5, counts())
	})
}

// The only test here over real connections: headers, the server's timeouts,
// and a client that leaves.
func TestEventsGoOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, apitest.Coupon("a", 5))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.SetPathValue("id", "a")
		r.GetWatch(w, req)
	}))
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
	srv.Start()
	defer srv.Close()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	require.NoError(t, err)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	lines, events := bufio.NewScanner(res.Body), 0
	for events < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	require.Equal(t, 3, events, "beyond the time limits of other requests: %v", lines.Err())
}

func (r *rig) pastOf(t *testing.T, id string) (past struct {
	At, Left []int64
	P50Ms    []*float64 `json:"p50_ms"`
	Rates    map[string][]float64
}) {
	t.Helper()
	watching := r.openAs(withPast, id)
	synctest.Wait()
	require.Equal(t, "retry: 2000\n", <-watching.lines)
	<-watching.lines
	require.Equal(t, "event: past\n", <-watching.lines)
	data, _ := strings.CutPrefix(<-watching.lines, "data: ")
	require.NoError(t, json.Unmarshal([]byte(data), &past))
	watching.leave()
	return past
}

func TestAWatchBeginsWithThePastThoughNobodyWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 500))
		var soldOut, claimed, took atomic.Int64
		require.True(t, r.Record(func(int) map[string]map[string]int64 {
			news := map[string]int64{"claimed": claimed.Swap(0), "sold_out": soldOut.Swap(0), "took_20": took.Swap(0)}
			maps.DeleteFunc(news, func(_ string, n int64) bool { return n == 0 })
			if len(news) == 0 {
				return nil
			}
			return map[string]map[string]int64{"a": news}
		}))
		pass(live.Every / 2)
		for second := range 8 {
			r.claim("a", 3)
			claimed.Add(3)
			took.Add(3)
			if second >= 5 {
				soldOut.Add(7)
			}
			pass(live.Every)
		}
		past := r.pastOf(t, "a")
		require.Len(t, past.At, 7, "but for the first, which knows no rates")
		require.Equal(t, []float64{3, 3, 3, 3, 3, 3, 3}, past.Rates["accepted"])
		require.Equal(t, []float64{0, 0, 0, 0, 7, 7, 7}, past.Rates["sold_out"], "0 before it appeared")
		require.InDelta(t, models.TookBound(20).Seconds()*1000, *past.P50Ms[4], 0.01)
		require.IsDecreasing(t, past.Left)
		require.Len(t, past.Rates, 2, "codes of refusals alone")

		pass(10 * time.Second)
		before := r.reads()
		pass(time.Minute)
		require.Equal(t, before+6, r.reads(), "after a lull every ten seconds")
		r.claim("a", 3)
		claimed.Add(3)
		pass(3 * live.Every)
		past = r.pastOf(t, "a")
		sold := 0.0
		for i := 1; i < len(past.At); i++ {
			sold += past.Rates["accepted"][i] * float64(past.At[i]-past.At[i-1]) / 1000
		}
		require.InDelta(t, 3*6+3, sold, 1, "what was sold after it counts once")

		pass(11 * time.Minute)
		before = r.reads()
		pass(time.Minute)
		require.Equal(t, before, r.reads(), "ten minutes after its last claim it is sampled no more")

		watching := r.open("a")
		for range 20 {
			pass(time.Minute)
			watching.events(t)
		}
		past = r.pastOf(t, "a")
		require.Len(t, past.At, 600, "it is bounded")
		require.IsIncreasing(t, past.At)
		watching.leave()
	})
}
