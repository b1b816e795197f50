package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/models"
	"dibs/proof/load"
)

// ErrBench means a run of `dibs bench` ended with different figures in
// Redis, MySQL and the answers, or found no sustainable rate.
var ErrBench = errors.New("cmd: bench")

type benchRun struct {
	url      string
	plan     load.Plan
	ramp     bool
	limit    load.Ramp
	step     time.Duration
	hold     float64
	users    int64
	stock    int64
	keys     bool
	batch    bool
	syncWait time.Duration
	form     printer.Form
}

func newBench(env Env) *cobra.Command {
	var b benchRun
	c := command(env, cobra.Command{
		Use:   "bench",
		Short: "Send claims over HTTP at a set rate, or find the highest rate that keeps p99 low",
		Long: `Sends claims at a constant rate, whatever the answers do, and counts each one's latency
from the moment it was due: a service that stalls cannot hide the wait of claims that were
due in the meantime. Or, with --ramp, finds the highest rate that keeps p99 below a limit
and then measures a run at a share of it (--hold). A rate that fails is tried once more,
and the one found must hold again: the table shows every try.

Runs against the Dibs at --url (a token from DIBS_ADMIN_TOKEN or --admin-token), or else
starts 'dibs serve' in a process of its own, with embedded servers or those of
DIBS_REDIS_URL and DIBS_MYSQL_DSN. It makes a campaign bench-…, which it closes in the
end; its claims stay in the database.

With --batch the claims go through one client of the Go package dibs/client, as those of a
storefront: callers who come while a call is in flight share the next one. --connections
is then the callers.

Reports sends, answers by code, latency, sends that the generator itself was late with,
how far the database was behind in the meantime, and how long after the last answer
everything was in it. The age of claims on their way is an upper bound, from polls 50 ms
apart. Exits 1 if the books do not agree with the answers, or if no rate held.`,
		Example: `  dibs bench                                              1,000 claims a second for 10 s, embedded servers
  dibs bench --rate 5000 --duration 30s --connections 500
  dibs bench --batch --rate 10000 --connections 1000      through the Go client, whose callers share requests
  dibs bench --ramp                                       the highest rate with p99 < 10ms, then 80 % of it
  dibs bench --ramp --p99 5ms --hold 1 -o json > bench.json
  DIBS_ADMIN_TOKEN=… dibs bench --url https://dibs.example --rate 200
  dibs bench --rate 5000 --stock 1000                     a sell-out: nearly all are refused`,
	}, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := b.check(c.Flags().Changed("rate")); err != nil {
			return err
		}
		return b.run(ctx, env, c, cfg)
	})
	flags := c.Flags()
	flags.StringVar(&b.url, "url", "", "a running Dibs, such as http://127.0.0.1:8080; empty: start one")
	flags.Float64Var(&b.plan.Rate, "rate", 1000, "claims a second; with --ramp the first that is tried")
	flags.DurationVar(&b.plan.Duration, "duration", 10*time.Second, "of the measured run")
	flags.DurationVar(&b.plan.WarmUp, "warm-up", 2*time.Second, "at the same rate before, not measured")
	flags.IntVar(&b.plan.Connections, "connections", 200,
		"claims under way at the same time; a send that finds none free waits, and that counts")
	flags.BoolVar(&b.ramp, "ramp", false, "find the highest rate that keeps p99 below --p99")
	flags.DurationVar(&b.limit.P99, "p99", 10*time.Millisecond, "the limit for --ramp")
	flags.Float64Var(&b.limit.To, "ramp-max", 200_000, "claims a second that --ramp never goes above")
	flags.DurationVar(&b.step, "ramp-step", 4*time.Second, "how long --ramp tries each rate")
	flags.Float64Var(&b.hold, "hold", 0.8, "share of the rate found by --ramp that is then measured, above 0 to 1")
	flags.Int64Var(&b.users, "users", 100_000, "users whose turn it is one after another; there is no limit per user")
	flags.Int64Var(&b.stock, "stock", 1_000_000_000, "units to claim; few measure a sell-out")
	flags.BoolVar(&b.keys, "keys", true, "an idempotency key with each claim")
	flags.BoolVar(&b.batch, "batch", false, "claim through the Go client, whose callers share requests")
	flags.DurationVar(&b.syncWait, "sync-wait", time.Minute, "how long the database may take after the last answer")
	b.form.Add(c)
	return c
}

// check refuses bad flags before anything is started.
func (b *benchRun) check(rateSet bool) error {
	b.limit.From = b.plan.Rate
	if err := b.plan.Validate(); err != nil {
		_, message, _ := strings.Cut(err.Error(), load.ErrPlan.Error()+": ")
		return usagef("--%s", message)
	}
	u, err := url.Parse(b.url)
	isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.RawQuery == ""
	b.url = strings.TrimRight(b.url, "/")
	first := min(b.plan.Rate, b.limit.To)
	switch {
	case b.ramp && rateSet && b.plan.Rate > b.limit.To:
		return usagef("--rate %g is above --ramp-max %g", b.plan.Rate, b.limit.To)
	case b.ramp && first*b.step.Seconds() < load.LowestPart:
		return usagef("a --ramp-step of %s must send at least %d claims at the first rate, %g a second", b.step, load.LowestPart, first)
	case b.batch && !b.keys:
		return usagef("--keys=false does not go with --batch: the client gives each claim a key")
	case b.url != "" && !isURL:
		return usagef("--url must be http://host:port or https://host")
	}
	return cmp.Or(
		must("--p99", b.limit.P99 > 0, "above 0", b.limit.P99),
		must("--ramp-step", b.step >= 100*time.Millisecond && b.step <= time.Hour, "100ms to 1h", b.step),
		// NaN fails both comparisons
		must("--hold", b.hold > 0 && b.hold <= 1, "above 0 and at most 1", b.hold),
		must("--ramp-max", b.limit.To >= 1 && b.limit.To <= load.RateMax, fmt.Sprintf("1 to %d", load.RateMax), b.limit.To),
		must("--sync-wait", b.syncWait > 0, "above 0", b.syncWait),
		between("--users", b.users, 1, models.UnitsMax), between("--stock", b.stock, 1, models.UnitsMax),
	)
}

func (b *benchRun) run(ctx context.Context, env Env, c *cobra.Command, cfg *config.Config) (err error) {
	token, err := cfg.TokenOfAdmin()
	if err != nil {
		return err
	}
	servers := "of the Dibs at --url"
	if b.url == "" {
		if err := cfg.CheckServers(); err != nil {
			return err
		}
		service, startErr := load.StartService(ctx, serviceEnviron(env.Environ, c.Flags()), env.Stderr, cfg.ShutdownTimeout)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, service.Stop(cfg.ShutdownTimeout)) }()
		b.url = service.URL
		servers = "as configured"
		if cfg.Embedded() {
			servers = "embedded"
		}
	}
	run := load.Bench{
		Target: &load.Target{
			BaseURL: b.url, Token: token, CampaignID: "bench-" + uuid.NewString()[:8], Users: b.users, Keys: b.keys, Batch: b.batch,
		},
		Stock: b.stock, Plan: b.plan, Step: b.step, Hold: b.hold, SyncWait: b.syncWait,
		StartPhase: func(name string, sends int64) (func(int64), func()) {
			bar := printer.NewProgress(env.Stderr, name, int(sends))
			return func(answered int64) { bar.Set(int(answered)) }, bar.Done
		},
	}
	if b.ramp {
		run.Ramp = &b.limit
	}
	report, err := run.Run(ctx)
	if err != nil {
		return err
	}
	report.Servers = servers
	if b.form == printer.JSON {
		err = printer.PrintJSON(env.Stdout, report)
	} else {
		_, err = fmt.Fprintln(env.Stdout, report.Table())
	}
	return errors.Join(err, verdict(&report))
}

// serviceEnviron passes settings from flags on as variables, which
// other users can't read.
func serviceEnviron(environ []string, flags *pflag.FlagSet) []string {
	known := settingFlags()
	set := func(name, value string) string {
		return config.Prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=" + value
	}
	child := slices.Concat(environ, []string{set("http-addr", "127.0.0.1:0")})
	flags.Visit(func(f *pflag.Flag) {
		if known.Lookup(f.Name) != nil {
			child = append(child, set(f.Name, f.Value.String()))
		}
	})
	return append(child, set("log-level", "info"), set("log-format", "json"))
}

func verdict(r *load.Report) error {
	switch {
	case !r.Books.Agree:
		return fmt.Errorf("%w: the books do not agree: %s", ErrBench, strings.Join(r.Books.Wrong, "; "))
	case r.Ramp != nil && r.Ramp.TopRate == 0:
		return fmt.Errorf("%w: no rate kept p99 below %gms", ErrBench, r.Ramp.P99LimitMS)
	}
	return nil
}
