package trials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"dibs/cmd"
	"dibs/internal/config"
	"dibs/internal/testenv"
	"dibs/proof/lab"
)

// labRun is what the flags of `dibs lab` say.
type labRun struct {
	work lab.Workload
	json bool
	list bool
	docs string
	part string
}

func newLab(env cmd.Env) *cobra.Command {
	var l labRun
	c := cmd.Command(env, cobra.Command{
		Use:   "lab",
		Short: "Run the ladder of strategies, from a naive counter to Dibs, side by side under one workload",
		Long: `Runs ways to hand out a limited number of units (locks in Redis, transactions in MySQL, scripts, Dibs itself), each
under the same workload from several processes, and prints one table: claims a second and how many times faster Dibs is,
latency, units sold twice or not at all, users over their limit, locks that a killed process leaves behind, and what a claim
costs MySQL and Redis.

In every round each strategy is warmed up, measured, and then sold out by a crowd that wants more than there is; in the
first round a process is killed where that hurts most. The rounds go up and down the ladder, so that noise hurts all alike.

Uses the servers of DIBS_REDIS_URL and DIBS_MYSQL_DSN (the user must be able to create a database; Redis must not be in use
by a Dibs). For each that is not set it starts one of its own from PATH (redis-server, mariadbd) in a temporary folder.`,
		Example: `  dibs lab                                                     the whole ladder, some three minutes
  dibs lab --rounds 1 --duration 1s                            a first look
  dibs lab --list                                              the strategies and the flaw of each
  dibs lab --strategies lua-update,for-update,dibs-http
  dibs lab --strategies red-packet,dibs-packages,dibs-http --connections 20 --units 100000 --users 100000
                                                               the red packet article's benchmark, beside Dibs
  dibs lab --json > lab.json
  dibs lab --docs docs                                         puts figures and plots into docs/lab.md and docs/lab/`,
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error { return l.run(ctx, env, cfg) })
	flags := c.Flags()
	flags.StringSliceVar(&l.work.Strategies, "strategies", nil, "names, comma-separated; all when not set")
	flags.IntVar(&l.work.Users, "users", lab.DefaultUsers, "users of the sell-out; each asks once more often than it may have")
	flags.Int64Var(&l.work.Units, "units", lab.DefaultUnits, "units of the sell-out")
	flags.Int64Var(&l.work.PerUser, "per-user", lab.DefaultPerUser, "units a user may have")
	flags.IntVar(&l.work.Connections, "connections", lab.DefaultConnections, "claims at the same time, over all processes")
	flags.IntVar(&l.work.Processes, "processes", lab.DefaultProcesses, "processes that claim")
	flags.IntVar(&l.work.SQLPool, "sql-pool", lab.DefaultSQLPool, "connections to MySQL of strategies without Dibs, over all processes")
	flags.IntVar(&l.work.Rounds, "rounds", lab.DefaultRounds, "how often each strategy has its turn")
	flags.DurationVar(&l.work.Duration, "duration", lab.DefaultDuration, "of one measurement")
	flags.DurationVar(&l.work.WarmUp, "warm-up", lab.DefaultWarmUp, "before one measurement")
	flags.DurationVar(&l.work.Patience, "patience", lab.DefaultPatience, "how long a claim waits for a lock")
	flags.DurationVar(&l.work.RetryPause, "retry-pause", lab.DefaultRetryPause, "before a claim asks for a lock again, on average")
	flags.BoolVar(&l.json, "json", false, "print JSON instead of the table")
	flags.BoolVar(&l.list, "list", false, "list the strategies and run nothing")
	flags.StringVar(&l.docs, "docs", "", "a folder with a lab.md to put figures and plots into")
	flags.StringVar(&l.part, "docs-part", "", "which part of lab.md to fill; when not set: mysql or mariadb, as the server is")
	return c
}

func (l *labRun) run(ctx context.Context, env cmd.Env, cfg *config.Config) error {
	if err := l.check(); err != nil {
		return err
	}
	if l.list {
		return listStrategies(env)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("trials: %w", err)
	}
	defer testenv.Close()
	bar := cmd.NewProgress(env.Stderr, "strategies measured", l.work.Rounds*l.count())
	report, err := lab.Run(ctx, lab.Options{
		Workload: l.work, RedisURL: cfg.RedisURL, MySQLDSN: cfg.MySQLDSN,
		Self:     func(args ...string) *exec.Cmd { return exec.Command(self, args...) }, //nolint:gosec,noctx // this program; the lab ends it
		Progress: func(done, _ int, _ string) { bar.Set(done) },
	})
	bar.Done()
	if err != nil {
		return err
	}
	if l.docs != "" {
		err = report.Publish(l.docs, l.part)
	}
	return errors.Join(l.print(env, &report), err)
}

// check refuses what no lab could run, before a server is started. A zero is a value here, not a request for the default.
func (l *labRun) check() error {
	work := l.work
	if len(work.Strategies) == 0 {
		work.Strategies = work.WithDefaults().Strategies
	}
	if err := work.Validate(); err != nil {
		_, message, _ := strings.Cut(err.Error(), lab.ErrConfig.Error()+": ")
		return fmt.Errorf("%w: %s", cmd.ErrUsage, message)
	}
	if l.docs == "" {
		return nil
	}
	if _, err := os.Stat(l.docs + "/lab.md"); err != nil {
		return fmt.Errorf("%w: --docs: %w", cmd.ErrUsage, err)
	}
	return nil
}

func (l *labRun) count() int { return len(l.work.WithDefaults().Strategies) }

func (l *labRun) print(env cmd.Env, report *lab.Report) error {
	if !l.json {
		_, err := fmt.Fprintln(env.Stdout, report.Table())
		return err
	}
	encoder := json.NewEncoder(env.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

func listStrategies(env cmd.Env) error {
	t := cmd.NewTable()
	t.AppendHeader([]any{"strategy", "what it is", "its flaw"})
	for _, r := range lab.Strategies() {
		t.AppendRow([]any{r.Name, r.Title, r.Flaw})
	}
	_, err := fmt.Fprintln(env.Stdout, t.Render())
	return err
}

// newLabWorker is what the lab starts this program as to have claimers in other processes.
func newLabWorker(env cmd.Env) *cobra.Command {
	return &cobra.Command{
		Use: lab.WorkerCommand, Short: "Claim for a lab", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return lab.Work(c.Context(), os.Stdin, env.Stdout) },
	}
}
