package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpproxy"
	"gorm.io/gorm"

	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/webhooks"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
)

func newWebhooks(env Env) *cobra.Command {
	c := role(env, cobra.Command{
		Use:   "webhooks",
		Short: "Run the webhooks: events of the claim streams, posted to your endpoints",
		Long: `Reads the claim streams in the consumer group "webhooks", which it registers, and posts
each event to the endpoints of --webhooks-file that want it: signed, in order for each
campaign, again with growing pauses while an endpoint does not take it. What an endpoint
has not taken for 24 hours is parked, and its next delivery says that something is
missing.

One process delivers; others that are started stand by. docs/webhooks.md describes the
file and has receivers in Go, Python and TypeScript.`,
		Example: "  dibs webhooks --webhooks-file /etc/dibs/endpoints.json --metrics-addr 127.0.0.1:9094",
	})
	c.AddCommand(newParkedWebhooks(env), newReplayWebhooks(env), newDiscardWebhooks(env), newTestWebhook(env))
	return c
}

func addWhich(c *cobra.Command, which *webhooks.Which) *cobra.Command {
	c.Flags().StringVar(&which.Endpoint, "endpoint", "", "events of one endpoint; of "+allUnlessGiven)
	c.Flags().StringVar(&which.EventID, "id", "", "one event, by its id; "+allUnlessGiven)
	return c
}

func newParkedWebhooks(env Env) *cobra.Command {
	var which webhooks.Which
	var form printer.Form
	c := withDatabase(env, cobra.Command{
		Use: "parked", Short: "List the events that endpoints did not take, with the reasons",
		Example: "  dibs webhooks parked --endpoint shop\n  dibs webhooks parked -o json",
	}, func(ctx context.Context, db *gorm.DB) error {
		l := printer.New(env.Stdout, form, parkedWebhookView)
		for e, err := range webhooks.Parked(ctx, db, which) {
			if err == nil {
				err = l.Add(parkedWebhookOf(&e))
			}
			if err != nil {
				return err
			}
		}
		return l.End()
	})
	form.Add(c)
	return addWhich(c, &which)
}

func newReplayWebhooks(env Env) *cobra.Command {
	var which webhooks.Which
	var form printer.Form
	c := command(env, cobra.Command{
		Use: "replay", Short: "Post the parked events once more; those that are taken are parked no longer",
		Long: `Posts parked events once more, oldest first, with the webhook-id that they had. An event
that is not taken stays parked, and so do those behind it of its endpoint and campaign. It
may be run while the role runs: what is replayed comes late, which its timestamp says.

Exit code 0: nothing is left. 1: something is.`,
		Example: "  dibs webhooks replay --endpoint shop",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		endpoints, err := process.ReadEndpoints(cfg, newLogger(cfg, env.Stderr))
		if err != nil {
			return err
		}
		return withStack(ctx, env.process(cfg), func(ctx context.Context, s *process.Stack) error {
			if err := noteParked(ctx, s.DB, models.AuditParkedReplayed, which); err != nil {
				return err
			}
			taken, left, err := s.Dispatcher(endpoints).Replay(ctx, which)
			err = cmp.Or(err, stillParked(left, left+taken, "events"))
			return cmp.Or(printer.PrintOne(env.Stdout, form, map[string]int64{"delivered": taken, "parked": left},
				fmt.Sprintf("delivered %s, still parked %s", printer.Number(taken), printer.Number(left))), err)
		})
	})
	form.Add(c)
	return addWhich(c, &which)
}

func newDiscardWebhooks(env Env) *cobra.Command {
	var which webhooks.Which
	form := printer.JSON
	c := withDatabase(env, cobra.Command{
		Use: "discard", Short: "Delete parked events for good; they are printed, and posted nowhere",
		Example: "  dibs webhooks discard --endpoint shop",
		PreRunE: func(c *cobra.Command, _ []string) error {
			if which == (webhooks.Which{}) {
				return missing(c, "--endpoint or --id")
			}
			return nil
		},
	}, func(ctx context.Context, db *gorm.DB) error {
		if err := noteParked(ctx, db, models.AuditParkedDiscarded, which); err != nil {
			return err
		}
		l := printer.New(env.Stdout, form, parkedWebhookView)
		for e, err := range webhooks.Discard(ctx, db, which) {
			if err == nil {
				err = l.Add(parkedWebhookOf(&e))
			}
			if err != nil {
				return errors.Join(err, l.End())
			}
		}
		return l.End()
	})
	form.Add(c)
	return addWhich(c, &which)
}

// noteParked records in the audit log what is about to be done to parked
// events. It refuses an id that none has.
func noteParked(ctx context.Context, db *gorm.DB, action string, which webhooks.Which) error {
	isAny, err := process.NoteWebhooks(ctx, db, action, which)
	if err == nil && !isAny && which.EventID != "" {
		err = fmt.Errorf("cmd: no such parked event: %s", which.EventID)
	}
	return err
}

func newTestWebhook(env Env) *cobra.Command {
	var form printer.Form
	c := command(env, cobra.Command{
		Use: "test ENDPOINT", Short: "Send an endpoint of the file a message of the type webhook.test, signed as events are",
		Long: `Sends one endpoint of --webhooks-file a message of the type webhook.test, which is no
event, signed as events are.

Exit code 0: the endpoint took it. 1: it did not, and why is printed.`,
		Example: "  dibs webhooks test shop --webhooks-file /etc/dibs/endpoints.json",
	}, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		endpoints, err := process.ReadEndpoints(cfg, newLogger(cfg, env.Stderr))
		if err != nil {
			return err
		}
		name := c.Flags().Arg(0)
		endpoint := endpoints()[name]
		if endpoint == nil {
			return usagef("the file names no endpoint %q; it has %v", name, slices.Sorted(maps.Keys(endpoints())))
		}
		start := time.Now()
		if err := webhooks.Test(ctx, endpoint, cfg.WebhooksPrivate, httpproxy.FromEnvironment().ProxyFunc()); err != nil {
			return fmt.Errorf("cmd: the endpoint %s did not take the message: %w", name, err)
		}
		took := time.Since(start).Round(time.Millisecond)
		return printer.PrintOne(env.Stdout, form, map[string]any{"endpoint": name, "took_ms": took.Milliseconds()},
			fmt.Sprintf("the endpoint %s took the message within %s", name, took))
	})
	form.Add(c)
	return c
}

type parkedWebhook struct {
	Endpoint   string      `json:"endpoint"`
	CampaignID string      `json:"campaign_id"`
	EventID    string      `json:"event_id"`
	Type       event.Type  `json:"type"`
	At         models.Time `json:"at"`
	ParkedAt   models.Time `json:"parked_at"`
	Reason     string      `json:"reason"`
	Payload    string      `json:"payload"`
}

var parkedWebhookView = printer.View[parkedWebhook]{
	Header: []string{"endpoint", "campaign", "event", "reason", "type", "parked at"}, Wide: 2,
	Rows: func(p *parkedWebhook, row func(...any)) {
		row(p.Endpoint, p.CampaignID, p.EventID, p.Reason, p.Type, p.ParkedAt)
	},
}

func parkedWebhookOf(e *stored.WebhookEvent) parkedWebhook {
	return parkedWebhook{
		Endpoint: e.Endpoint, CampaignID: e.CampaignID, EventID: e.EventID, Type: e.Type, At: models.NewTime(e.At),
		ParkedAt: models.NewTime(*e.ParkedAt), Reason: e.Reason, Payload: string(e.Payload),
	}
}
