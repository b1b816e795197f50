package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	plenty     = 1_000_000_000 // a stock that no measurement exhausts
	sellOutMax = time.Minute   // no claim of a sell-out starts later
)

var (
	errAlive  = errors.New("lab: the claimer that was to die came through")
	errRanOut = errors.New("lab: the stock of a measurement ran out; give it a shorter --duration")
)

type contest struct {
	*runner

	entry Entry
	env   Env    // with the service's endpoint
	name  string // prefix of its campaigns
}

// round measures a strategy and sells out; in the first round it
// also kills a claimer.
func (r *runner) round(ctx context.Context, entry Entry, round int) (one Round, err error) {
	// After the service has stopped, as it would recreate its stream.
	defer func() { err = errors.Join(err, r.clean(context.WithoutCancel(ctx))) }()
	c := &contest{runner: r, entry: entry, env: r.env}
	c.name = fmt.Sprintf("%s-%s-%d", r.id, entry.Name, round)
	if entry.Serve != nil {
		endpoint, stop, failed := entry.Serve(ctx, c.env)
		if failed != nil {
			return Round{}, failed
		}
		c.env.Endpoint = endpoint
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := c.measure(ctx, &one); err != nil {
		return Round{}, fmt.Errorf("measure: %w", err)
	}
	if err := c.sellOut(ctx, &one); err != nil {
		return Round{}, fmt.Errorf("sell-out: %w", err)
	}
	if round == 0 {
		err = c.kill(ctx, &one)
	}
	return one, err
}

// campaign prepares a campaign in this process and calls do.
func (c *contest) campaign(
	ctx context.Context, what string, units int64, do func(Env, Strategy) error,
) (err error) {
	env := c.env
	env.Campaign = Campaign{ID: c.name + "-" + what, Units: units}
	s, err := c.entry.New(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	return do(env, s)
}

// orders makes the workers' orders. from has the common part.
func (c *contest) orders(env Env, from order) (all []order) {
	for i := range c.w.Processes {
		o := from
		o.Servers = env.Servers
		o.Terms = env.Terms
		o.Strategy = c.entry.Name
		o.Share = i
		o.Of = c.w.Processes
		o.Connections = share(c.w.Connections, i, o.Of)
		o.SQLPool = share(c.w.SQLPool, i, o.Of)
		all = append(all, o)
	}
	return all
}

// load has the workers claim, and waits until MySQL has their claims.
func (c *contest) load(ctx context.Context, env Env, s Strategy, o order) (
	answers []done, late time.Duration, err error,
) {
	answers, err = work(ctx, c.opts.Self, c.orders(env, o)...)
	last := time.Now()
	if settler, ok := s.(Settler); ok && err == nil {
		err = settler.Settle(ctx)
	}
	return answers, time.Since(last), err
}

// measure has the workers claim for a time from an unlimited
// stock, each claim by a new user. Costs include the warm-up.
func (c *contest) measure(ctx context.Context, one *Round) error {
	units := c.entry.Plenty
	orDefault(&units, plenty)
	return c.campaign(ctx, "m", units, func(env Env, s Strategy) error {
		cpu, statements, err := env.usage(ctx)
		if err != nil {
			return err
		}
		o := order{WarmUp: c.w.Duration / 4, For: c.w.Duration, Prefix: "m"}
		answers, late, err := c.load(ctx, env, s, o)
		if err != nil {
			return err
		}
		cpuAfter, statementsAfter, err := env.usage(ctx)
		if err != nil {
			return err
		}
		err = one.add(answers, c.w.Duration)
		claims := float64(max(one.Claims, 1))
		one.SettledMs = float64(late.Microseconds()) / 1000
		one.RedisMicros = (cpuAfter - cpu) * 1e6 / claims
		// without usage's own
		one.Statements = float64(max(statementsAfter-statements-1, 0)) / claims
		return err
	})
}

func (r *Round) add(answers []done, lasted time.Duration) error {
	r.latency = newHistogram()
	for _, d := range answers {
		if d.Outcomes[SoldOut] > 0 {
			return errRanOut
		}
		one, err := hdrhistogram.Decode(d.Latency)
		if err != nil {
			return fmt.Errorf("lab: latencies of a worker: %w", err)
		}
		r.latency.Merge(one)
		r.ClaimsPerSecond += float64(d.InTime) / lasted.Seconds()
		r.Claims += d.Outcomes[Claimed]
		r.note(d)
	}
	return nil
}

func (r *Round) note(d done) {
	r.Busy += d.Outcomes[Busy]
	r.Failed += d.Failed
	orDefault(&r.Failure, d.Failure)
}

// usage reads Redis' CPU time in seconds, and MySQL's number of
// statements. On shared servers they include other clients.
func (e *Env) usage(ctx context.Context) (cpu float64, statements int64, err error) {
	info, err := e.Redis.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("lab: redis usage: %w", err)
	}
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("lab: redis usage: %w", err)
		}
		cpu += seconds
	}
	var name string
	err = e.DB.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &statements)
	return cpu, statements, err
}

// sellOut sends a crowd that wants more than the stock, every user twice.
func (c *contest) sellOut(ctx context.Context, one *Round) error {
	return c.campaign(ctx, "s", c.w.Units, func(env Env, s Strategy) error {
		o := order{Users: c.w.Users, Asks: 2, AtMost: sellOutMax, Prefix: "s"}
		answers, _, err := c.load(ctx, env, s, o)
		one.count(answers, c.w.Units)
		return err
	})
}

// count compares users' outcomes with the stock.
func (r *Round) count(answers []done, units int64) {
	var took time.Duration
	had := make(map[string]int64)
	for _, d := range answers {
		for user, n := range d.Had {
			had[user] += n
			r.Sold += n
		}
		took = max(took, d.Took)
		r.Cut = r.Cut || d.Cut
		r.note(d)
	}
	for _, n := range had {
		if n > 1 {
			r.OverLimitUsers++
		}
	}
	r.Oversold = max(r.Sold-units, 0)
	if !r.Cut {
		r.Undersold = max(units-r.Sold, 0)
	}
	if took > 0 {
		r.SellOutRate = float64(r.Sold) / took.Seconds()
	}
}

// kill kills a claimer at the strategy's worst step, and checks
// which lock it left.
func (c *contest) kill(ctx context.Context, one *Round) error {
	return c.campaign(ctx, "k", 10, func(env Env, _ Strategy) (err error) {
		o := c.orders(env, order{Users: 1, Asks: 1, AtMost: sellOutMax, Prefix: "k", DieAt: c.entry.DieAt})[0]
		o.Of = 1
		o.Connections = 1
		_, err = work(ctx, c.opts.Self, o)
		if err == nil {
			return errAlive
		}
		if !errors.Is(err, errKilled) {
			return err
		}
		one.lock, err = lockLeft(ctx, env)
		return err
	})
}

func lockLeft(ctx context.Context, env Env) (string, error) {
	ends, err := env.Redis.PTTL(ctx, env.lockKey()).Result()
	switch {
	case err != nil:
		return "", fmt.Errorf("lab: lock: %w", err)
	case ends == -2: // there is none
		return "0", nil
	case ends == -1:
		return "1, for ever", nil
	default:
		return fmt.Sprintf("1, for %.0f s", math.Ceil(ends.Seconds())), nil
	}
}
