package cmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"dibs/api"
	"dibs/api/console"
	"dibs/api/console/signin"
	"dibs/client"
	"dibs/internal/config"
	"dibs/internal/crowd"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/models"
)

// demo runs one campaign and one crowd, then compares the results.
type demo struct {
	users       int
	stock       int64
	perUser     int64
	connections int
	keepRunning bool
	console     bool
	shards      int
	last        time.Duration // duration of a rush to watch
	token       string
	limitFlags  []string
	limits      []client.Limit
}

func newDemo(env Env) *cobra.Command {
	var d demo
	c := command(env, cobra.Command{
		Use:   "demo",
		Short: "Open a campaign, send a crowd at it over HTTP, and compare Redis and the database with the crowd's answers",
		Long: `Opens a campaign, sends a crowd at it over real HTTP and prints the reconciled outcome:
what the crowd got, what Redis says, what the database says. Exits 0 only if they agree, 3
if they don't.

With --console it is a slower rush to watch at /console: 6,000 users want 4,000 units
within a minute, unless set otherwise. A link that signs in with one click is printed
before the crowd comes, and it serves on after the outcome, until interrupted.

With --shards 4 the campaign is spread over four shards, as one that is too hot for one
Redis primary is: each takes claims by itself, units move between them, and the outcome
shows them. Own servers get as many partitions, unless set otherwise.

With --durability mysql each yes waits until the database has its row.

With neither DIBS_REDIS_URL nor DIBS_MYSQL_DSN set it brings its own servers: nothing to
install, nothing left behind.`,
		Example: "  dibs demo\n  dibs demo --users 100000 --stock 5000 --per-user 2\n  dibs demo --keep-running\n" +
			"  dibs demo --console\n  dibs demo --shards 4\n  dibs demo --limit device:day:1\n  dibs demo --durability mysql",
	}, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := d.prepare(c, cfg); err != nil {
			return err
		}
		address := make(chan string, 1)
		o := env.process(cfg)
		o.TakesClaims = true
		o.Listening = func(addr string) { address <- addr }
		return withStack(ctx, o, func(ctx context.Context, s *process.Stack) error { return d.run(ctx, env, s, address) })
	})
	c.Flags().IntVar(&d.users, "users", 20_000, "people in the crowd, 1 to 10000000")
	c.Flags().Int64Var(&d.stock, "stock", 1_000, "units to hand out")
	c.Flags().Int64Var(&d.perUser, "per-user", 1, "units a user may hold; everybody asks for 1 to this many")
	c.Flags().StringArrayVar(&d.limitFlags, "limit", nil,
		"a limit such as device:day:1, once for each; two people of the crowd share each device")
	c.Flags().IntVar(&d.shards, "shards", 1, fmt.Sprintf("shards that the campaign is spread over, 1 to %d", models.ShardsMax))
	c.Flags().IntVar(&d.connections, "connections", 200, "people asking at the same time, 1 to 5000")
	c.Flags().BoolVar(&d.keepRunning, "keep-running", false, "serve on after the outcome, until interrupted")
	c.Flags().DurationVar(&d.last, "last", time.Minute, "with --console: how long the rush lasts")
	return c
}

// prepare checks the flags, and sets what the environment leaves open.
func (d *demo) prepare(c *cobra.Command, cfg *config.Config) (err error) {
	if err := d.check(); err != nil {
		return err
	}
	if !c.Flags().Changed("http-addr") {
		cfg.HTTPAddr = "127.0.0.1:0"
	}
	if !cfg.Given(config.Prefix + "LOG_LEVEL") {
		cfg.LogLevel = "warn"
	}
	d.console = c.Flags().Changed("console") && cfg.Console
	if d.console {
		d.toWatch(c, cfg)
	}
	d.token, err = cfg.TokenOfAdmin()
	if err != nil {
		return err
	}
	if !cfg.Given(config.Prefix+"PARTITIONS") && cfg.Embedded() && cfg.DataDir == "" {
		cfg.Partitions = d.shards
	}
	if !cfg.Given(config.Prefix+"GROUPS") && cfg.Embedded() {
		cfg.Groups = []string{models.GroupSyncer} // the only reader
	}
	return process.CheckListen(cfg) //nolint:wrapcheck // named there
}

// toWatch makes the rush slow enough to follow, and a token to sign in.
func (d *demo) toWatch(c *cobra.Command, cfg *config.Config) {
	if !c.Flags().Changed("users") {
		d.users = 6_000
	}
	if !c.Flags().Changed("stock") {
		d.stock = 4_000
	}
	if cfg.AdminToken == "" && cfg.FileOf("ADMIN_TOKEN") == "" {
		cfg.AdminToken = rand.Text()
	}
	d.keepRunning = true
}

func (d *demo) check() error {
	var err error
	d.limits, err = limitsOf(d.limitFlags)
	switch {
	case err != nil:
		return err
	case d.shards > 1 && slices.ContainsFunc(d.limits, func(l client.Limit) bool { return l.By != models.ByUser }):
		return usagef("--limit by another subject than user needs --shards 1")
	}
	return cmp.Or(between("--users", d.users, 1, 10_000_000), between("--stock", d.stock, 1, models.UnitsMax),
		between("--per-user", d.perUser, 1, models.QuantityMax), between("--shards", d.shards, 1, models.ShardsMax),
		between("--connections", d.connections, 1, 5_000), must("--last", d.last >= time.Second && d.last <= time.Hour, "1s to 1h", d.last))
}

// run runs every role while the crowd claims, then stops them.
func (d *demo) run(ctx context.Context, env Env, s *process.Stack, address <-chan string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	var err error
	select {
	case addr := <-address:
		err = d.play(ctx, env, s, "http://"+addr)
	case err = <-served:
		return errors.Join(err, errors.New("cmd: the service ended before the demo started"))
	}
	if d.keepRunning && ctx.Err() == nil {
		<-ctx.Done()
	}
	stop()
	return errors.Join(err, <-served)
}

func (d *demo) play(ctx context.Context, env Env, s *process.Stack, base string) error {
	cfg := s.Config
	id := "demo-" + uuid.NewString()[:8]
	printer.Printf(env.Stdout, "%s\ncampaign %s at %s: %d users on %d connections, %d units, up to %d a user, durability %s\n\n",
		s.Where, id, base, d.users, d.connections, d.stock, d.perUser, cfg.Durability)
	if err := d.openCampaign(ctx, base, id); err != nil {
		return err
	}
	if d.console {
		page := console.Path + "/campaigns/" + id
		link, err := api.SignInPath(process.Tokens(cfg), d.token, page)
		if err != nil {
			return fmt.Errorf("cmd: %w", err)
		}
		printer.Printf(env.Stdout, "watch it at %s%s\n"+
			"  one click signs you in, once, within %.0f minutes: %s%s\n  later, sign in with the token %s\n\n", base, page,
			signin.LinkFor.Minutes(), base, link, d.token)
	}
	bar := printer.NewProgress(env.Stderr, "claims answered", d.users)
	tally, err := crowd.Run(ctx, crowd.Plan{
		BaseURLs: []string{base}, Token: d.token, CampaignID: id, Users: d.users, Connections: d.connections,
		Quantity: func(user int) int64 { return int64(user)%d.perUser + 1 },
		Again:    func(user int) bool { return user%3 == 0 },
		Progress: bar.Set, PerSecond: d.perSecond(), Subjects: d.subjects,
	})
	bar.Done()
	if err != nil {
		return err
	}
	books, err := books(ctx, s, id, drainTimeout)
	if err != nil {
		return err
	}
	printOutcome(env.Stdout, tally, books)
	if d.keepRunning {
		printer.Printf(env.Stdout, "\nstill serving: curl -s %s/v1/campaigns/%s/stock   (interrupt to end)\n", base, id)
	}
	if wrong := disagreements(tally, books); len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrDrift, wrong[0])
	}
	return nil
}

// sharers is how many users share a device or another subject.
const sharers = 2

func (d *demo) subjects(user int) map[string]string {
	subjects := make(map[string]string)
	for _, l := range d.limits {
		if l.By != models.ByUser {
			subjects[l.By] = fmt.Sprintf("%s-%d", l.By, user/sharers)
		}
	}
	return subjects
}

func limitsOf(texts []string) ([]client.Limit, error) {
	var limits []client.Limit
	for _, text := range texts {
		l, err := models.ParseLimit(text)
		if err != nil {
			return nil, usagef("--limit: %s", strings.TrimPrefix(err.Error(), models.ErrID.Error()+": "))
		}
		limits = append(limits, client.Limit{By: l.By, Per: string(l.Per), Max: l.Max})
	}
	return limits, nil
}

// perSecond is how many users start a second; 0: as many as possible.
func (d *demo) perSecond() float64 {
	if !d.console {
		return 0
	}
	return float64(d.users) / d.last.Seconds()
}

// drainTimeout bounds the wait for the last claims to reach the database.
const drainTimeout = 60 * time.Second

func (d *demo) openCampaign(ctx context.Context, base, id string) error {
	c, err := client.New(client.Config{BaseURL: base, Token: d.token})
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	defer c.Disconnect()
	_, _, err = c.CreateCampaign(ctx, client.NewCampaign{
		ID: id, Kind: client.KindCoupon, Name: "demo", Total: &d.stock, PerUser: &d.perUser, LowStockAt: d.stock / 10, Shards: d.shards,
		Limits: d.limits,
	})
	return err
}
