package process

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"dibs/consumer"
	"dibs/internal/config"
	"dibs/internal/lease"
	"dibs/internal/sleep"
	"dibs/internal/webhooks"

	"golang.org/x/net/http/httpproxy"
)

// ReadEndpoints reads the endpoints file before servers are contacted.
func ReadEndpoints(cfg *config.Config, log *slog.Logger) (func() webhooks.Endpoints, error) {
	if cfg.WebhooksFile == "" {
		return nil, config.Refuse("WEBHOOKS_FILE", "is not set: where are the events to go?")
	}
	file, err := webhooks.ReadFile(cfg.WebhooksFile, log)
	if err != nil {
		return nil, config.Refuse("WEBHOOKS_FILE", "%w", err)
	}
	return file.Get, nil
}

// Dispatcher posts events.
func (s *Stack) Dispatcher(endpoints func() webhooks.Endpoints) *webhooks.Dispatcher {
	return webhooks.New(webhooks.Config{
		DB: s.DB, Endpoints: endpoints, Private: s.Config.WebhooksPrivate, Proxy: httpproxy.FromEnvironment().ProxyFunc(),
		Logger: s.Logger, Registerer: s.Registry,
	})
}

func (s *Stack) runWebhooks(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	d := s.Dispatcher(s.endpoints)
	// before waiting for the lease, so that nothing is trimmed that the
	// group hasn't read
	for partition := range s.Config.Partitions {
		_ = s.Scripts.NewGroup(ctx, partition, webhooks.Group) // else its reader creates it
	}
	one := lease.Consumer{Scripts: s.Scripts, Group: webhooks.Group, Name: webhooks.Group, Taken: webhooks.ErrReplaced}
	return one.Alone(ctx, func() {
		s.Logger.WarnContext(ctx, "another process has taken over, this one stands by", "group", webhooks.Group)
	}, func(ctx context.Context) error {
		s.Logger.Info("delivering", "group", webhooks.Group, "partitions", s.Config.Partitions, "endpoints",
			slices.Sorted(maps.Keys(s.endpoints())))
		return d.Run(ctx, func(ctx context.Context) error {
			cfg := s.reading(webhooks.Group)
			cfg.OnRead = func(stream string) { s.pulse.Beat("the reader of "+stream, liveWithin) }
			if !s.Config.ReadAhead {
				cfg.IsReady = consumer.IsApplied(s.Redis)
			}
			return d.ReadAgainAfterRestores(ctx, s.Scripts, func(ctx context.Context) error {
				var replaying sync.WaitGroup
				defer replaying.Wait()
				replaying.Go(func() { s.replayWebhooks(ctx, d) })
				return consumer.ReadInOrder(ctx, cfg, s.Config.Partitions, d.Submit)
			})
		})
	})
}

// replayEvery is the interval of checks for replays that the console
// requested.
const replayEvery = 5 * time.Second

// replayWebhooks does the replays that the console requests, until ctx ends.
func (s *Stack) replayWebhooks(ctx context.Context, d *webhooks.Dispatcher) {
	lot := s.ParkedBy(webhooks.Group)
	for sleep.For(ctx, replayEvery) == nil {
		err := lot.ReplayAsked(ctx, func(ctx context.Context, id string) (left string, err error) {
			_, n, err := d.Replay(ctx, parkedWebhookOf(id))
			if n > 0 {
				left = "the endpoint does not take it"
			}
			return left, err
		})
		if err != nil && ctx.Err() == nil {
			s.Logger.Warn("parked events are not replayed yet, will try again", "error", err)
		}
	}
}
