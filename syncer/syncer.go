package syncer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// Defaults of Config.
const (
	DefaultTrimEvery    = time.Second
	DefaultSweepEvery   = 5 * time.Second  // reads all campaigns, and seldom finds one
	DefaultMarkEvery    = time.Second      // so much of a claim stream may be lost unseen, if no API process saw it
	DefaultEvictEvery   = 10 * time.Second // asks Redis about each campaign that it holds
	DefaultCompareEvery = 2 * time.Second  // a read of each server a campaign
	DefaultExpireEvery  = time.Second
	DefaultReturnEvery  = time.Second
	DefaultRelayEvery   = 250 * time.Millisecond
	pruneEvery          = time.Minute
	complainEvery       = 30 * time.Second // a trouble that lasts is told this often
)

// Config is what the syncer role does. All of Trimmer, Sweeper, Marker, Evictor and Logger are required. Without a Leader the
// process does what a leader does, without asking; without a Reconciler nothing is compared, without a Relay nothing of the
// outbox is told, without an Expirer no claim expires, without a Closer no closed campaign is ended, without a Pruner the
// tables that are kept for people grow.
type Config struct {
	Trimmer       *retention.Trimmer
	Resumer       *residency.Resumer
	StreamWatcher *residency.StreamWatcher
	Evictor       *residency.Evictor

	Reconciler *reconcile.Reconciler
	Relay      *resolve.Relay
	Expirer    *resolve.Expirer
	Finalizer  *resolve.Finalizer
	Pruner     *retention.Pruner
	Leader     *Leader // does not run yet: Run has it stand

	TrimEvery     time.Duration
	ResumeEvery   time.Duration
	WatchEvery    time.Duration
	EvictEvery    time.Duration
	CompareEvery  time.Duration
	RelayEvery    time.Duration
	ExpireEvery   time.Duration
	FinalizeEvery time.Duration
	RoundTimeout  time.Duration // most that one round of any may take; by default ten times the longest pause, and at least 10s

	Logger *slog.Logger
	Clock  clockwork.Clock
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c Config) WithDefaults() Config {
	sqlstore.OrDefault(&c.TrimEvery, DefaultTrimEvery)
	sqlstore.OrDefault(&c.ResumeEvery, DefaultSweepEvery)
	sqlstore.OrDefault(&c.WatchEvery, DefaultMarkEvery)
	sqlstore.OrDefault(&c.EvictEvery, DefaultEvictEvery)
	sqlstore.OrDefault(&c.CompareEvery, DefaultCompareEvery)
	sqlstore.OrDefault(&c.RelayEvery, DefaultRelayEvery)
	sqlstore.OrDefault(&c.ExpireEvery, DefaultExpireEvery)
	sqlstore.OrDefault(&c.FinalizeEvery, DefaultReturnEvery)
	sqlstore.OrDefault(&c.RoundTimeout, max(10*time.Second, 10*c.TrimEvery, 10*c.ResumeEvery, 10*c.WatchEvery, 10*c.EvictEvery, 10*c.CompareEvery))
	if c.Clock == nil {
		c.Clock = clockwork.NewRealClock()
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c Config) Validate() error {
	switch {
	case c.Trimmer == nil:
		return sqlstore.Required("Trimmer")
	case c.Resumer == nil:
		return sqlstore.Required("Sweeper")
	case c.StreamWatcher == nil:
		return sqlstore.Required("Marker")
	case c.Evictor == nil:
		return sqlstore.Required("Evictor")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.TrimEvery < 0 || c.ResumeEvery < 0 || c.WatchEvery < 0 || c.EvictEvery < 0 || c.CompareEvery < 0 || c.RelayEvery < 0 ||
		c.ExpireEvery < 0 || c.FinalizeEvery < 0 || c.RoundTimeout < 0:
		return fmt.Errorf("%w: TrimEvery, SweepEvery, MarkEvery, EvictEvery, CompareEvery, RelayEvery, ExpireEvery, ReturnEvery"+
			" and RoundTimeout must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Syncer is the role that keeps house: it trims the claim streams, notices when one lost something, evicts idle campaigns and
// completes what was left half done. Every part is safe to run in several processes at once; the ones that would only repeat
// each other's work, which are to mark, to evict, to compare, to relay, to expire and to return, are the leader's.
type Syncer struct{ cfg Config }

// New checks cfg and makes the role.
func New(cfg Config) (*Syncer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Syncer{cfg: cfg}, nil
}

// Run works until ctx ends and then returns nil. Troubles of a round are logged, and the next round tries again.
func (s *Syncer) Run(ctx context.Context) error {
	var g errgroup.Group
	if s.cfg.Leader != nil {
		g.Go(func() error { return s.cfg.Leader.Run(ctx) })
	}
	for _, part := range []struct {
		name  string
		pause time.Duration
		round func(ctx context.Context) error
	}{
		{"trim", s.cfg.TrimEvery, func(ctx context.Context) error { _, err := s.cfg.Trimmer.Trim(ctx); return err }},
		{"sweep", s.cfg.ResumeEvery, s.sweep},
		{"mark", s.cfg.WatchEvery, s.led(s.mark)},
		{"evict", s.cfg.EvictEvery, s.led(func(ctx context.Context) error { _, err := s.cfg.Evictor.Evict(ctx); return err })},
		{"compare", s.cfg.CompareEvery, s.compare},
		{"relay", s.cfg.RelayEvery, s.relay},
		{"prune", pruneEvery, s.prune},
		{"expire", s.cfg.ExpireEvery, s.expire},
		{"return", s.cfg.FinalizeEvery, s.giveBack},
	} {
		g.Go(func() error {
			s.repeat(ctx, part.name, part.pause, part.round)
			return nil
		})
	}
	return g.Wait()
}

// led is a round that only the leader does.
func (s *Syncer) led(round func(ctx context.Context) error) func(ctx context.Context) error {
	if s.cfg.Leader == nil {
		return round
	}
	return func(ctx context.Context) error {
		_, err := s.cfg.Leader.Do(ctx, round)
		return err
	}
}

// compare is the leader's, too; of the figures of who leads no more nothing must be left.
func (s *Syncer) compare(ctx context.Context) error {
	if s.cfg.Reconciler == nil {
		return nil
	}
	if s.cfg.Leader != nil && !s.cfg.Leader.Leads() {
		s.cfg.Reconciler.ResetMetrics()
		return nil
	}
	return s.led(func(ctx context.Context) error { _, err := s.cfg.Reconciler.Reconcile(ctx); return err })(ctx)
}

// relay is the leader's, so that an event is told once as a rule.
func (s *Syncer) relay(ctx context.Context) error {
	if s.cfg.Relay == nil {
		return nil
	}
	if s.cfg.Leader != nil && !s.cfg.Leader.Leads() {
		s.cfg.Relay.ResetMetrics()
		return nil
	}
	return s.led(func(ctx context.Context) error { _, err := s.cfg.Relay.Relay(ctx); return err })(ctx)
}

// expire is the leader's. A round that runs out of time goes on with the next.
func (s *Syncer) expire(ctx context.Context) error {
	if s.cfg.Expirer == nil {
		return nil
	}
	return s.led(func(ctx context.Context) error {
		n, err := s.cfg.Expirer.Expire(ctx)
		if n > 0 {
			s.cfg.Logger.InfoContext(ctx, "released claims that nobody redeemed in time", slog.Int("claims", n))
		}
		if n > 0 && errors.Is(err, context.DeadlineExceeded) {
			err = nil // there are many, and the next round goes on
		}
		return err
	})(ctx)
}

// giveBack is the leader's. A round that runs out of time goes on with the next.
func (s *Syncer) giveBack(ctx context.Context) error {
	if s.cfg.Finalizer == nil {
		return nil
	}
	return s.led(func(ctx context.Context) error {
		n, err := s.cfg.Finalizer.Finalize(ctx)
		if n > 0 {
			s.cfg.Logger.InfoContext(ctx, "ended closed campaigns", slog.Int("campaigns", n))
		}
		return err
	})(ctx)
}

// prune is the leader's.
func (s *Syncer) prune(ctx context.Context) error {
	return s.led(func(ctx context.Context) error {
		var failed []error
		if s.cfg.Relay != nil {
			_, err := s.cfg.Relay.Prune(ctx)
			failed = append(failed, err)
		}
		if s.cfg.Pruner != nil {
			_, err := s.cfg.Pruner.Prune(ctx)
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	})(ctx)
}

func (s *Syncer) sweep(ctx context.Context) error {
	n, err := s.cfg.Resumer.Resume(ctx)
	if n > 0 {
		s.cfg.Logger.InfoContext(ctx, "completed campaigns that were left half done", slog.Int("campaigns", n))
	}
	return err
}

// mark has the campaigns of a stream that lost something looked at right away.
func (s *Syncer) mark(ctx context.Context) error {
	broken, err := s.cfg.StreamWatcher.Watch(ctx)
	if broken > 0 {
		err = errors.Join(err, s.sweep(ctx))
	}
	return err
}

// repeat runs a round at once and then after each pause.
func (s *Syncer) repeat(ctx context.Context, name string, pause time.Duration, round func(ctx context.Context) error) {
	complain := rate.Sometimes{First: 1, Interval: complainEvery}
	for ctx.Err() == nil {
		roundCtx, cancel := context.WithTimeout(ctx, s.cfg.RoundTimeout)
		err := round(roundCtx)
		cancel()
		if err != nil && ctx.Err() == nil {
			complain.Do(func() {
				s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "syncer: a round failed", slog.String("round", name), slog.Any("error", err))
			})
		}
		select {
		case <-ctx.Done():
		case <-s.cfg.Clock.After(pause):
		}
	}
}
