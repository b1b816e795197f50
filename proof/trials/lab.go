package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"dibs/cmd"
	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
)

// labRun holds the flags of `dibs lab`.
type labRun struct {
	work     lab.Workload
	json     bool
	markdown bool
	list     bool
}

func newLab(env cmd.Env) *cobra.Command {
	l := labRun{work: lab.DefaultWorkload()}
	c := cmd.Command(env, cobra.Command{
		Use:   "lab",
		Short: "Run the ladder of strategies, from a naive counter to Dibs, side by side under one workload",
		Long: `Runs ways to hand out a limited number of units (locks in Redis, transactions in MySQL,
scripts, Dibs itself), each under the same workload from several processes, and prints one
table: claims a second and how many times faster Dibs is, latency, units sold twice or not
at all, users over their limit, locks that a killed process leaves behind, and what a
claim costs MySQL and Redis.

In every round each strategy is warmed up, measured, and then sold out by a crowd that
wants more than there is; in the first round a process is killed where that hurts most.
The rounds go up and down the ladder, so that noise hurts all alike.

Uses the servers of DIBS_REDIS_URL and DIBS_MYSQL_DSN (the user must be able to create a
database; Redis must not be in use by a Dibs). For each that is not set it starts one of
its own from PATH (redis-server, mariadbd) in a temporary folder.`,
		Example: `  dibs lab                                                     the whole ladder, some three minutes
  dibs lab --rounds 1 --duration 1s                            a first try
  dibs lab --list                                              the strategies and the flaw of each
  dibs lab --strategies lua-update,for-update,dibs-http
  dibs lab --strategies red-packet,dibs-packages,dibs-http --connections 20 --units 100000 --users 100000
                                                               the red packet article's benchmark, beside Dibs
  dibs lab --json > lab.json
  dibs lab --markdown                                          what docs/lab.md has of it`,
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error { return l.run(ctx, env, cfg) })
	flags := c.Flags()
	w := &l.work
	flags.StringSliceVar(&w.Strategies, "strategies", nil, "names, comma-separated; all when not set")
	flags.IntVar(&w.Users, "users", w.Users, "users of the sell-out; each asks twice for one unit")
	flags.Int64Var(&w.Units, "units", w.Units, "units of the sell-out")
	flags.IntVar(&w.Connections, "connections", w.Connections, "claims at the same time, over all processes")
	flags.IntVar(&w.Processes, "processes", w.Processes, "processes that claim")
	flags.IntVar(&w.SQLPool, "sql-pool", w.SQLPool, "connections to MySQL of strategies without Dibs, over all processes")
	flags.IntVar(&w.Rounds, "rounds", w.Rounds, "how often each strategy has its turn")
	flags.DurationVar(&w.Duration, "duration", w.Duration, "of one measurement, after a quarter as long a warm-up")
	flags.DurationVar(&w.Patience, "patience", w.Patience, "how long a claim waits for a lock")
	flags.DurationVar(&w.RetryPause, "retry-pause", w.RetryPause, "before a claim asks for a lock again, on average")
	flags.BoolVar(&l.json, "json", false, "print JSON instead of the table")
	flags.BoolVar(&l.markdown, "markdown", false, "print what docs/lab.md has instead of the table")
	flags.BoolVar(&l.list, "list", false, "list the strategies and run nothing")
	return c
}

func (l *labRun) run(ctx context.Context, env cmd.Env, cfg *config.Config) error {
	if l.list {
		return listStrategies(env)
	}
	if err := l.work.Validate(); err != nil { // before a server is started
		_, message, _ := strings.Cut(err.Error(), lab.ErrConfig.Error()+": ")
		return fmt.Errorf("%w: %s", cmd.ErrUsage, message)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("trials: %w", err)
	}
	defer testenv.Close()
	entries, err := l.work.Entries()
	if err != nil {
		return err
	}
	bar := printer.NewProgress(env.Stderr, "strategies measured", l.work.Rounds*len(entries))
	report, err := lab.Run(ctx, lab.Options{
		Workload: l.work, RedisURL: cfg.RedisURL, MySQLDSN: cfg.MySQLDSN,
		Self:     func(args ...string) *exec.Cmd { return exec.Command(self, args...) }, //nolint:gosec,noctx // this program; the lab ends it
		Progress: func(done, _ int, _ string) { bar.Set(done) },
	})
	bar.Done()
	if err != nil {
		return err
	}
	return l.print(env, &report)
}

func (l *labRun) print(env cmd.Env, report *lab.Report) error {
	switch {
	case l.json:
		encoder := json.NewEncoder(env.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case l.markdown:
		_, err := fmt.Fprintln(env.Stdout, report.Markdown())
		return err
	default:
		_, err := fmt.Fprintln(env.Stdout, report.Table())
		return err
	}
}

func listStrategies(env cmd.Env) error {
	t := printer.NewTable()
	t.AppendHeader([]any{"strategy", "what it is", "its flaw"})
	for _, r := range lab.Strategies() {
		t.AppendRow([]any{r.Name, r.Title, r.Flaw})
	}
	_, err := fmt.Fprintln(env.Stdout, t.Render())
	return err
}

func newLabWorker(env cmd.Env) *cobra.Command {
	return &cobra.Command{
		Use: lab.WorkerCommand, Short: "Claim for a lab", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return lab.Work(c.Context(), os.Stdin, env.Stdout) },
	}
}
