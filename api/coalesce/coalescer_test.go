package coalesce_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/api/coalesce"
	"dibs/api/workers"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func request(user string) lua.ClaimRequest {
	return lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: 1}
}

// echo answers each request with its user and its index among all.
type echo struct {
	seq   atomic.Int64
	mu    sync.Mutex
	sizes []int
	seen  map[uuid.UUID]int
	now   atomic.Int32
	most  atomic.Int32
}

func (e *echo) call(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
	if now := e.now.Add(1); now > e.most.Load() {
		e.most.Store(now)
	}
	defer e.now.Add(-1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sizes = append(e.sizes, len(reqs))
	replies := make([]lua.ClaimReply, len(reqs))
	for i := range reqs {
		e.seen[reqs[i].ID]++
		replies[i] = lua.ClaimReply{
			Outcome: models.OutcomeClaimed, Claim: models.Claim{ID: reqs[i].ID.String(), UserID: reqs[i].UserID, Seq: e.seq.Add(1)},
		}
	}
	return replies, nil
}

func newEcho() *echo { return &echo{seen: map[uuid.UUID]int{}} }

type gated struct {
	*echo
	entered chan int
	letGo   chan error
}

func newGated() *gated { return &gated{newEcho(), make(chan int, 100), make(chan error)} }

func (g *gated) call(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
	g.entered <- len(reqs)
	if err := <-g.letGo; err != nil {
		return nil, err
	}
	return g.echo.call(reqs)
}

func config() coalesce.Config {
	return coalesce.Config{PerCall: 128, InFlight: 1, QueueMax: 8192, WaitMax: time.Minute}
}

// coalescer is one with workers of its own.
type coalescer struct {
	*coalesce.Coalescer

	group *workers.Group
}

func start(cfg coalesce.Config, call func([]lua.ClaimRequest) ([]lua.ClaimReply, error)) coalescer {
	cfg.Call = call
	cfg.Group = &workers.Group{}
	cfg.Refuse = func() error { return nil }
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Metrics = coalesce.Metrics{
		PerCall: prometheus.NewHistogram(prometheus.HistogramOpts{}), Queued: prometheus.NewGauge(prometheus.GaugeOpts{}),
	}
	return coalescer{coalesce.New(cfg), cfg.Group}
}

func (c coalescer) Claim(ctx context.Context, req lua.ClaimRequest) (lua.ClaimReply, error) {
	t := c.Coalescer.Claim(ctx, req)
	return t.Reply, t.Err
}

func (c coalescer) Batch(ctx context.Context, reqs []lua.ClaimRequest) (replies []lua.ClaimReply, errs []error) {
	caller := coalesce.NewCaller(ctx, len(reqs))
	var tickets []*coalesce.Ticket
	for i := range reqs {
		tickets = append(tickets, caller.Add(reqs[i]))
	}
	c.Submit(tickets)
	caller.Wait()
	for _, t := range tickets {
		replies = append(replies, t.Reply)
		errs = append(errs, t.Err)
	}
	return replies, errs
}

func TestCoalescer_AThousandCallersGetTheirOwnAnswersOnce(t *testing.T) {
	t.Parallel()
	for calls := 1; calls <= 3; calls++ {
		t.Run(fmt.Sprint(calls, " at once"), func(t *testing.T) {
			t.Parallel()
			e := newEcho()
			cfg := config()
			cfg.InFlight, cfg.PerCall = calls, 16
			c := start(cfg, e.call)
			var g errgroup.Group
			for i := range 1000 {
				g.Go(func() error {
					for j := range 20 {
						req := request(fmt.Sprint(i, "-", j))
						reply, err := c.Claim(t.Context(), req)
						if err != nil || reply.Claim.ID != req.ID.String() || reply.Claim.UserID != req.UserID {
							return fmt.Errorf("%v got %v, %w", req, reply, err)
						}
					}
					return nil
				})
			}
			require.NoError(t, testenv.Result(t, g.Wait))
			require.Len(t, e.seen, 20_000)
			for id, n := range e.seen {
				require.Equal(t, 1, n, id)
			}
			shared := 0
			for _, n := range e.sizes {
				require.LessOrEqual(t, n, 16)
				if n > 1 {
					shared++
				}
			}
			require.Positive(t, shared, "control: calls were shared at all")
			require.LessOrEqual(t, int(e.most.Load()), calls)
			require.Zero(t, c.Queued())
			require.NoError(t, c.group.Stop(t.Context()))
			require.Zero(t, c.Workers())
		})
	}
}

func TestCoalescer_BatchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const callers, most = 50, 300
	e := newEcho()
	cfg := config()
	cfg.QueueMax = callers * most
	c := start(cfg, e.call)
	var g errgroup.Group
	for range callers {
		g.Go(func() error {
			reqs := make([]lua.ClaimRequest, 1+rand.IntN(most))
			for i := range reqs {
				reqs[i] = request("u")
			}
			replies, errs := c.Batch(t.Context(), reqs)
			last := int64(0)
			for i := range reqs {
				if errs[i] != nil || replies[i].Claim.ID != reqs[i].ID.String() || replies[i].Claim.Seq <= last {
					return fmt.Errorf("claim %d: %v %w", i, replies[i], errs[i])
				}
				last = replies[i].Claim.Seq
			}
			return nil
		})
	}
	require.NoError(t, testenv.Result(t, g.Wait))
}

func TestCoalescer_WhoComesDuringACallSharesTheNext(t *testing.T) {
	t.Parallel()
	gate := newGated()
	c := start(config(), gate.call)
	var g errgroup.Group
	claim := func() error { _, err := c.Claim(t.Context(), request("u")); return err }
	g.Go(claim)
	require.Equal(t, 1, testenv.Receive(t, gate.entered), "an idle coalescer does not wait for company")
	for range 200 {
		g.Go(claim)
	}
	require.Eventually(t, func() bool { return c.Queued() == 200 }, time.Minute, time.Millisecond)
	for _, size := range []int{128, 72} {
		testenv.Send(t, gate.letGo, nil)
		require.Equal(t, size, testenv.Receive(t, gate.entered))
	}
	testenv.Send(t, gate.letGo, nil)
	require.NoError(t, testenv.Result(t, g.Wait))
}

func TestCoalescer_FullQueueIsRefusedAtOnceAndSurely(t *testing.T) {
	t.Parallel()
	gate := newGated()
	cfg := config()
	cfg.QueueMax = 10
	c := start(cfg, gate.call)
	var g errgroup.Group
	g.Go(func() error { _, err := c.Claim(t.Context(), request("first")); return err })
	testenv.Receive(t, gate.entered)
	reqs := make([]lua.ClaimRequest, 15)
	for i := range reqs {
		reqs[i] = request("u")
	}
	var errs []error
	g.Go(func() error { _, errs = c.Batch(t.Context(), reqs); return nil })
	require.Eventually(t, func() bool { return c.Queued() == 10 }, time.Minute, time.Millisecond)
	_, err := c.Claim(t.Context(), request("late"))
	require.ErrorIs(t, err, coalesce.ErrQueueFull)
	require.ErrorIs(t, err, lua.ErrUnavailable)
	for range 2 {
		testenv.Send(t, gate.letGo, nil)
	}
	require.NoError(t, testenv.Result(t, g.Wait))
	for i, err := range errs {
		if i < 10 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, coalesce.ErrQueueFull, "what did not fit, and only that")
		}
	}
	require.Len(t, gate.seen, 11)
}

func TestCoalescer_WhoLeftBeforeIsNotSentAndWhoLeftAfterIsAnswered(t *testing.T) {
	t.Parallel()
	gate := newGated()
	c := start(config(), gate.call)
	sent, leaveSent := context.WithCancel(t.Context())
	queued, leaveQueued := context.WithCancel(t.Context())
	first, second, third := request("sent"), request("queued"), request("stays")
	var errSent, errQueued, errStays error
	var wg sync.WaitGroup
	wg.Go(func() { _, errSent = c.Claim(sent, first) })
	testenv.Receive(t, gate.entered)
	wg.Go(func() { _, errQueued = c.Claim(queued, second) })
	wg.Go(func() { _, errStays = c.Claim(t.Context(), third) })
	require.Eventually(t, func() bool { return c.Queued() == 2 }, time.Minute, time.Millisecond)
	leaveSent()
	leaveQueued()
	testenv.Send(t, gate.letGo, nil)
	require.Equal(t, 1, testenv.Receive(t, gate.entered), "who left is not sent")
	testenv.Send(t, gate.letGo, nil)
	testenv.Wait(t, wg.Wait)
	require.NoError(t, errSent, "the call ran on its own time, and to its end")
	require.ErrorIs(t, errQueued, coalesce.ErrLeft)
	require.ErrorIs(t, errQueued, lua.ErrUnavailable)
	require.NoError(t, errStays)
	require.Equal(t, map[uuid.UUID]int{first.ID: 1, third.ID: 1}, gate.seen)
}

func TestCoalescer_WhoWaitedTooLongIsNotSent(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClock()
	gate := newGated()
	cfg := config()
	cfg.WaitMax, cfg.Clock = 2*time.Second, now.Now
	c := start(cfg, gate.call)
	var wg sync.WaitGroup
	var errOld, errNew error
	wg.Go(func() { _, _ = c.Claim(t.Context(), request("first")) })
	testenv.Receive(t, gate.entered)
	wg.Go(func() { _, errOld = c.Claim(t.Context(), request("old")) })
	require.Eventually(t, func() bool { return c.Queued() == 1 }, time.Minute, time.Millisecond)
	now.Advance(2*time.Second + time.Millisecond)
	wg.Go(func() { _, errNew = c.Claim(t.Context(), request("new")) })
	require.Eventually(t, func() bool { return c.Queued() == 2 }, time.Minute, time.Millisecond)
	testenv.Send(t, gate.letGo, nil)
	require.Equal(t, 1, testenv.Receive(t, gate.entered))
	testenv.Send(t, gate.letGo, nil)
	testenv.Wait(t, wg.Wait)
	require.ErrorIs(t, errOld, coalesce.ErrWaited)
	require.ErrorIs(t, errOld, lua.ErrUnavailable)
	require.NoError(t, errNew)
}

func TestCoalescer_StopWaitsForWhatWasQueuedAndTakesNoMore(t *testing.T) {
	t.Parallel()
	gate := newGated()
	cfg := config()
	cfg.PerCall = 1
	c := start(cfg, gate.call)
	var g errgroup.Group
	for range 3 {
		g.Go(func() error { _, err := c.Claim(t.Context(), request("u")); return err })
	}
	testenv.Receive(t, gate.entered)
	require.Eventually(t, func() bool { return c.Queued() == 2 }, time.Minute, time.Millisecond)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.group.Stop(short), workers.ErrStop, "work is left")
	stopped := make(chan error, 1)
	go func() { stopped <- c.group.Stop(t.Context()) }()
	for range 2 {
		testenv.Send(t, gate.letGo, nil)
		testenv.Receive(t, gate.entered)
	}
	testenv.Send(t, gate.letGo, nil)
	require.NoError(t, testenv.Receive(t, stopped))
	require.NoError(t, testenv.Result(t, g.Wait))
	_, err := c.Claim(t.Context(), request("late"))
	require.ErrorIs(t, err, coalesce.ErrStopping)
	require.Len(t, gate.seen, 3)
}

// Its array is compacted while claims wait.
func TestCoalescer_QueueThatNeverEmptiesKeepsItsOrder(t *testing.T) {
	t.Parallel()
	gate := newGated()
	cfg := config()
	cfg.PerCall, cfg.QueueMax = 1, 4
	c := start(cfg, gate.call)
	next := func() {
		testenv.Send(t, gate.letGo, nil)
		testenv.Receive(t, gate.entered)
	}
	var wg sync.WaitGroup
	const last = 20
	var seqs [last]int64
	for i := range last {
		wg.Go(func() {
			reply, _ := c.Claim(t.Context(), request("u"))
			seqs[i] = reply.Claim.Seq
		})
		if i == 0 {
			testenv.Receive(t, gate.entered)
			continue
		}
		require.Eventually(t, func() bool { return c.Queued() == min(i, 3) }, time.Minute, time.Millisecond)
		if i >= 3 {
			next()
		}
	}
	next()
	next()
	testenv.Send(t, gate.letGo, nil)
	testenv.Wait(t, wg.Wait)
	require.True(t, slices.IsSorted(seqs[:]), seqs)
	require.EqualValues(t, last, seqs[last-1])
}

// With a wrong number of replies, no reply can be assigned to its claim.
func TestCoalescer_AWrongNumberOfRepliesIsNobodysAnswer(t *testing.T) {
	t.Parallel()
	for _, more := range []int{-3, -1, 1} {
		e := newEcho()
		c := start(config(), func(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error) {
			replies, err := e.call(reqs)
			return append(replies, make([]lua.ClaimReply, 1)...)[:len(reqs)+more], err
		})
		replies, errs := c.Batch(t.Context(), []lua.ClaimRequest{request("a"), request("b"), request("c")})
		for i := range replies {
			require.ErrorIs(t, errs[i], lua.ErrOutcomeUnknown, "%d replies too many", more)
			require.Zero(t, replies[i])
		}
	}
}
