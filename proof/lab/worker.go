package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"dibs/internal/sleep"
)

// WorkerCommand is the hidden command of a worker.
const WorkerCommand = "lab-worker"

// order is a worker's task: open a strategy and claim, either for a time with
// a new user per claim, or this worker's share of a sell-out.
type order struct {
	Servers
	Terms

	Strategy string `json:"strategy"`
	Share    int    `json:"share"` // index of this worker, from 0
	Of       int    `json:"of"`    // number of workers
	SQLPool  int    `json:"sql_pool"`
	DieAt    Step   `json:"die_at,omitempty"` // the process kills itself at this step

	WarmUp time.Duration `json:"warm_up_ns"`
	For    time.Duration `json:"for_ns"`          // after the warm-up
	Users  int           `json:"users,omitempty"` // of a sell-out
	Asks   int           `json:"asks,omitempty"`  // of each user
	AtMost time.Duration `json:"at_most_ns"`      // no claim of a sell-out starts later
	Prefix string        `json:"prefix"`          // of user ids
}

type done struct {
	Outcomes map[Outcome]int64 `json:"outcomes"`
	InTime   int64             `json:"in_time"`           // claims answered within For
	Failed   int64             `json:"failed"`            // claims that ended in an error
	Failure  string            `json:"failure,omitempty"` // the first of them
	Cut      bool              `json:"cut"`               // AtMost was over before the last ask
	Took     time.Duration     `json:"took_ns"`
	Had      map[string]int64  `json:"had,omitempty"` // user id -> units, of a sell-out
	// of accepted claims, an encoded histogram in µs
	Latency []byte `json:"latency"`
}

// Work is a worker process: it reads an order from in and writes
// its answer to out.
func Work(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("lab: order: %w", err)
	}
	entry, ok := StrategyNamed(o.Strategy)
	if !ok {
		return fmt.Errorf("%w: no strategy %q", ErrConfig, o.Strategy)
	}
	env, closeEnv, err := openEnv(o.Servers, o.Terms, o.SQLPool)
	if err != nil {
		return err
	}
	defer closeEnv()
	if o.DieAt != "" {
		env.At = dieAt(o.DieAt)
	}
	strategy, err := entry.New(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, strategy.Close()) }()
	if err := awaitOthers(ctx, env, o.Of); err != nil {
		return err
	}
	d, err := newCrowd(o, strategy).run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(d)
}

// awaitOthers waits until all workers are ready: a worker that
// starts alone has no competition.
func awaitOthers(ctx context.Context, env Env, workers int) error {
	err := env.Redis.Incr(ctx, env.key("ready")).Err()
	for err == nil {
		ready, failed := env.Redis.Get(ctx, env.key("ready")).Int()
		if failed != nil || ready >= workers {
			return failed
		}
		err = sleep.For(ctx, time.Millisecond)
	}
	return err
}

// dieAt kills this process at a step, like kill -9.
func dieAt(at Step) func(Step) error {
	return func(step Step) error {
		if step != at {
			return nil
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return err
		}
		select {} // until the signal arrives
	}
}

// latencyMax is the highest recorded latency, in µs.
const latencyMax = 120_000_000

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, latencyMax, 3) }

type crowd struct {
	order    order
	strategy Strategy
	start    time.Time

	mu      sync.Mutex
	asked   int
	done    done
	latency *hdrhistogram.Histogram
}

func newCrowd(o order, s Strategy) *crowd {
	c := &crowd{order: o, strategy: s, start: time.Now(), latency: newHistogram()}
	c.done.Outcomes = make(map[Outcome]int64)
	c.done.Had = make(map[string]int64)
	return c
}

// run runs all claimers and waits for their last answers.
func (c *crowd) run(ctx context.Context) (d done, err error) {
	var wg sync.WaitGroup
	for range c.order.Connections {
		wg.Go(func() { c.claims(ctx) })
	}
	wg.Wait()
	c.done.Took = time.Since(c.start)
	c.done.Latency, err = c.latency.EncodeV2()
	return c.done, err
}

func (c *crowd) claims(ctx context.Context) {
	for ctx.Err() == nil {
		user, ok := c.nextUser()
		if !ok {
			return
		}
		sent := time.Now()
		outcome, err := c.strategy.Claim(ctx, user)
		c.note(user, outcome, err, sent)
	}
}

// nextUser returns the next claim's user. In a sell-out the asks of one user
// are consecutive and go to different workers, so that they compete.
func (c *crowd) nextUser() (user string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.asked
	c.asked++
	o := &c.order
	since := time.Since(c.start)
	if o.Users == 0 {
		return o.Prefix + strconv.Itoa(o.Share) + "-" + strconv.Itoa(n), since < o.WarmUp+o.For
	}
	ask := n*o.Of + o.Share
	if ask >= o.Users*o.Asks {
		return "", false
	}
	if since > o.AtMost {
		c.done.Cut = true
		return "", false
	}
	return o.Prefix + strconv.Itoa(ask/o.Asks), true
}

func (c *crowd) note(user string, outcome Outcome, err error, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// With ErrLeaseLost the claim was made before the loss was
	// noticed: the user has the unit.
	if err != nil && (!errors.Is(err, ErrLeaseLost) || outcome != Claimed) {
		c.done.Failed++
		orDefault(&c.done.Failure, err.Error())
		return
	}
	c.done.Outcomes[outcome]++
	if outcome != Claimed {
		return
	}
	if c.order.Users > 0 {
		c.done.Had[user]++
	}
	if sent.Sub(c.start) < c.order.WarmUp {
		return
	}
	_ = c.latency.RecordValue(min(max(time.Since(sent).Microseconds(), 1), latencyMax)) // in range
	if time.Since(c.start) <= c.order.WarmUp+c.order.For {
		c.done.InTime++
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
