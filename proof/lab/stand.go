package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// plenty is a stock that no measurement gets through.
const plenty = 1_000_000_000

const (
	sellOutMax    = time.Minute            // no claim of a sell-out begins after this
	probePatience = 500 * time.Millisecond // of the claim after a claimer was killed
)

// stand is one strategy in one round: measured, sold out, and in the first round left by a claimer that is killed.
func (r *runner) stand(ctx context.Context, entry Entry, round int) (one Round, lock *Lock, err error) {
	// After the service has stopped, which would make its stream again.
	defer func() { err = errors.Join(err, r.clean(context.WithoutCancel(ctx))) }()
	env := r.env
	if entry.Serve != nil {
		service, err := entry.Serve(ctx, env)
		if err != nil {
			return Round{}, nil, err
		}
		env.Endpoint = service.Endpoint
		defer func() { err = errors.Join(err, service.Stop(ctx)) }()
	}
	c := contest{runner: r, entry: entry, env: env, name: fmt.Sprintf("%s-%s-%d", r.id, entry.Name, round)}
	one, err = c.measure(ctx)
	if err != nil {
		return Round{}, nil, fmt.Errorf("measure: %w", err)
	}
	one.SellOut, err = c.sellOut(ctx)
	if err != nil {
		return Round{}, nil, fmt.Errorf("sell-out: %w", err)
	}
	if round == 0 {
		left, err := c.kill(ctx)
		if err != nil {
			return Round{}, nil, fmt.Errorf("kill: %w", err)
		}
		lock = &left
	}
	return one, lock, nil
}

// contest is a strategy and its workers.
type contest struct {
	*runner

	entry Entry
	env   Env    // with the service's endpoint
	name  string // campaigns begin with it
}

// campaign makes the Strategy of a campaign in this process, prepares it, and calls do.
func (c *contest) campaign(ctx context.Context, what string, units int64, do func(Env, Strategy) error) (err error) {
	env := c.env
	env.Campaign = Campaign{ID: c.name + "-" + what, Units: units, PerUser: c.w.PerUser}
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

// opening is what worker i is notified of a campaign.
func (c *contest) opening(env Env, i int) opening {
	return opening{
		Place: env.Place, Strategy: c.entry.Name, Campaign: env.Campaign, Share: i, Of: c.w.Processes, Patience: c.w.Patience,
		Retry:    c.w.RetryPause,
		Claimers: share(c.w.Connections, i, c.w.Processes), SQLPool: share(c.w.SQLPool, i, c.w.Processes),
	}
}

func (c *contest) open(ctx context.Context, env Env) error {
	_, err := c.pool.send(ctx, func(i int) order {
		o := c.opening(env, i)
		return order{Open: &o}
	})
	return err
}

func (c *contest) load(ctx context.Context, l load) ([]done, error) {
	return c.pool.send(ctx, func(int) order { return order{Load: &l} })
}

// measure has the workers claim for a while from a stock that does not end, each claim by a user of its own.
func (c *contest) measure(ctx context.Context) (one Round, err error) {
	err = c.campaign(ctx, "m", plenty, func(env Env, s Strategy) error {
		if err := c.open(ctx, env); err != nil {
			return err
		}
		if _, err := c.load(ctx, load{For: c.w.WarmUp, Prefix: "w"}); err != nil {
			return err
		}
		if err := settled(ctx, s); err != nil {
			return err
		}
		one, err = c.measured(ctx, env, s)
		return err
	})
	return one, err
}

func (c *contest) measured(ctx context.Context, env Env, s Strategy) (Round, error) {
	before, err := env.readUsage(ctx)
	if err != nil {
		return Round{}, err
	}
	answers, err := c.load(ctx, load{For: c.w.Duration, Prefix: "m"})
	if err != nil {
		return Round{}, err
	}
	last := time.Now()
	if err := settled(ctx, s); err != nil {
		return Round{}, err
	}
	one := Round{SettledMs: float64(time.Since(last).Microseconds()) / 1000, latency: newHistogram()}
	after, err := env.readUsage(ctx)
	if err != nil {
		return Round{}, err
	}
	var inTime int64
	for _, d := range answers {
		if err := d.mergeInto(one.latency); err != nil {
			return Round{}, err
		}
		inTime += d.InTime
		one.Claims += d.Outcomes[Claimed.String()]
		one.Busy += d.Outcomes[Busy.String()]
		one.Failed += d.Failed
		orDefault(&one.Failure, d.Failure)
	}
	used := after.since(before)
	claims := float64(max(one.Claims, 1))
	one.ClaimsPerSecond = float64(inTime) / c.w.Duration.Seconds()
	one.Statements = float64(used.statements) / claims
	one.RedisMicros = float64(used.redisCPU.Nanoseconds()) / 1000 / claims
	return one, nil
}

func settled(ctx context.Context, s Strategy) error {
	if settler, ok := s.(Settler); ok {
		return settler.Settle(ctx)
	}
	return nil
}

// sellOut sends a crowd that wants more than there is, every user once more often than a user may have.
func (c *contest) sellOut(ctx context.Context) (out SellOut, err error) {
	err = c.campaign(ctx, "s", c.w.Units, func(env Env, s Strategy) error {
		if err := c.open(ctx, env); err != nil {
			return err
		}
		answers, err := c.load(ctx, load{
			Users: c.w.Users, Asks: int(c.w.PerUser) + 1, AtMost: sellOutMax, Prefix: "s", Present: true,
		})
		if err != nil {
			return err
		}
		out = count(answers, env.Campaign)
		return settled(ctx, s)
	})
	return out, err
}

// count holds what users were answered against what there was.
func count(answers []done, c Campaign) SellOut {
	var out SellOut
	var took time.Duration
	had := make(map[string]int64)
	for _, d := range answers {
		for user, units := range d.Had {
			had[user] += units
			out.Sold += units
		}
		took = max(took, d.Took)
		out.Busy += d.Outcomes[Busy.String()]
		out.Failed += d.Failed
		out.Cut = out.Cut || d.Cut
		orDefault(&out.Failure, d.Failure)
	}
	for _, units := range had {
		if c.PerUser > 0 && units > c.PerUser {
			out.OverLimitUsers++
		}
	}
	out.Oversold = max(out.Sold-c.Units, 0)
	if !out.Cut {
		out.Undersold = max(c.Units-out.Sold, 0)
	}
	if took > 0 {
		out.ClaimsPerSecond = float64(out.Sold) / took.Seconds()
	}
	return out
}

// kill has a claimer die at the strategy's worst step, and looks at what it left and whether the next claim is served.
func (c *contest) kill(ctx context.Context) (lock Lock, err error) {
	err = c.campaign(ctx, "k", 10, func(env Env, _ Strategy) error {
		if err := c.killOne(ctx, env); err != nil {
			return err
		}
		lock, err = lockLeft(ctx, env)
		if err != nil {
			return err
		}
		lock.Wedged, err = c.wedged(ctx, env)
		return err
	})
	return lock, err
}

// ErrAlive says that a claimer that was to die did not.
var ErrAlive = errors.New("lab: the claimer came through")

func (c *contest) killOne(ctx context.Context, env Env) error {
	doomed, err := startPool(c.opts.Self, 1)
	if err != nil {
		return err
	}
	o := c.opening(env, 0)
	o.Claimers = 1
	o.Of = 1
	o.DieAt = c.entry.DieAt
	_, err = doomed.send(ctx, func(int) order {
		return order{Open: &o, Load: &load{Users: 1, Asks: 1, AtMost: sellOutMax, Prefix: "k"}}
	})
	if err == nil {
		return errors.Join(ErrAlive, doomed.stop())
	}
	if !errors.Is(err, errWorker) {
		return errors.Join(err, doomed.stop())
	}
	<-doomed[0].process.ended
	return doomed.stop()
}

// lockLeft checks the campaign's lock.
func lockLeft(ctx context.Context, env Env) (Lock, error) {
	ends, err := env.Redis.PTTL(ctx, env.lockKey()).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return Lock{}, fmt.Errorf("lab: lock: %w", err)
	case ends == -2: // there is none
		return Lock{}, nil
	case ends == -1:
		return Lock{Left: 1, ForEver: true}, nil
	default:
		return Lock{Left: 1, EndsMs: ends.Milliseconds()}, nil
	}
}

// wedged reports whether another claimer is kept waiting.
func (c *contest) wedged(ctx context.Context, env Env) (bool, error) {
	env.Patience = probePatience
	s, err := c.entry.New(env)
	if err != nil {
		return false, err
	}
	outcome, err := s.Claim(ctx, "after")
	return outcome == Busy, errors.Join(err, s.Close())
}
