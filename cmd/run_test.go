package cmd_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// within bounds every wait of these tests; busy machines are slow.
const within = 2 * time.Minute

const secret = "0123456789abcdef-hunter2"

type ended struct {
	code           int
	stdout, stderr string
}

// run runs a command to its end, with only these lines in its environment.
func run(t testing.TB, environ []string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out, problems testenv.Buffer
	code := cmd.Run(ctx, cmd.Env{Args: args, Environ: environ, Stdout: &out, Stderr: &problems})
	require.NoError(t, ctx.Err(), "dibs %v does not end\n%s", args, &problems)
	return ended{code, out.String(), problems.String()}
}

func requireOK(t testing.TB, got ended) string {
	t.Helper()
	require.Equal(t, cmd.ExitOK, got.code, got.stdout+got.stderr)
	return got.stdout
}

// requireRefusal expects an empty stdout, and one line on stderr that
// contains these words.
func requireRefusal(t testing.TB, got ended, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, got.code, got.stderr)
	require.Empty(t, got.stdout)
	require.True(t, strings.HasPrefix(got.stderr, "dibs: "), got.stderr)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), "one line, not %q", got.stderr)
	for _, word := range words {
		require.Contains(t, got.stderr, word)
	}
}

// running is a command that runs until it is stopped.
type running struct {
	t             testing.TB
	url           string
	out, problems *testenv.Buffer
	cancel        context.CancelFunc
	code          chan int
	end           *ended
}

// start starts a role and returns once it answers. It stops after the test.
func start(t testing.TB, environ []string, args ...string) *running {
	t.Helper()
	addr := machine.Addr(t)
	environ = slices.Concat([]string{"DIBS_METRICS_ADDR=" + addr, "DIBS_HTTP_ADDR=" + addr, "DIBS_NAME=" + args[0]}, environ)
	r := launch(t, environ, args...)
	require.Eventually(t, func() bool { return r.over() || r.answers("http://"+addr) }, within, 10*time.Millisecond)
	require.Nil(t, r.end, "dibs %v ended at once\n%s", args, r.problems)
	r.url = "http://" + addr
	return r
}

func launch(t testing.TB, environ []string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, out: &testenv.Buffer{}, problems: &testenv.Buffer{}, cancel: cancel, code: make(chan int, 1)}
	go func() {
		r.code <- cmd.Run(ctx, cmd.Env{Args: args, Environ: environ, Stdout: r.out, Stderr: r.problems})
	}()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("dibs %v said:\n%s%s", args, r.out, r.problems)
		}
	})
	return r
}

func (r *running) over() bool {
	select {
	case code := <-r.code:
		r.end = &ended{code, r.out.String(), r.problems.String()}
	default:
	}
	return r.end != nil
}

func (r *running) answers(url string) bool {
	res, err := callers.Get(url + "/healthz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// stop stops the command, as SIGTERM does, and returns how it ended.
func (r *running) stop() ended {
	r.t.Helper()
	r.cancel()
	return r.wait()
}

func (r *running) wait() ended {
	r.t.Helper()
	if r.end == nil {
		select {
		case code := <-r.code:
			r.end = &ended{code, r.out.String(), r.problems.String()}
		case <-time.After(within):
			require.FailNow(r.t, "the command does not end", r.problems.String())
		}
	}
	return *r.end
}

// callers keeps no connections, so that none outlives a test.
var callers = &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), v), a.body)
}

func (a answer) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &problem)
	return problem.Code
}

// call sends a request; headers are "Name: value" lines.
func call(t testing.TB, method, url, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := callers.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, res.Header, string(text)}
}

// get is a GET that must succeed.
func (r *running) get(path string) answer {
	r.t.Helper()
	got := call(r.t, http.MethodGet, r.url+path, "")
	require.Equal(r.t, http.StatusOK, got.status, got.body)
	return got
}

// post is a POST below /v1 that must succeed.
func (r *running) post(path, body string, headers ...string) answer {
	r.t.Helper()
	got := call(r.t, http.MethodPost, r.url+"/v1"+path, body, headers...)
	require.Equal(r.t, 2, got.status/100, "%s %s: %s", path, body, got.body)
	return got
}

// cli runs a command over this service's HTTP.
func (r *running) cli(line string) ended {
	r.t.Helper()
	return run(r.t, []string{"DIBS_URL=" + r.url}, strings.Fields(line)...)
}

// ok is a cli that must succeed.
func (r *running) ok(line string) string {
	r.t.Helper()
	return requireOK(r.t, r.cli(line))
}

// claim claims a unit for each user, and retries while the campaign is
// loaded.
func (r *running) claim(campaign string, users ...string) {
	r.t.Helper()
	for _, user := range users {
		claim := func() answer {
			return call(r.t, http.MethodPost, r.url+"/v1/campaigns/"+campaign+"/claims", `{"user_id":"`+user+`"}`)
		}
		got := claim()
		for until := time.Now().Add(within); strings.Contains(got.body, `"code":"unavailable"`) && time.Now().Before(until); {
			got = claim()
		}
		require.Equal(r.t, 2, got.status/100, "%s: %s", user, got.body)
	}
}

// synced waits until this number of the campaign's units is in the database.
func (r *running) synced(campaign string, units int64) {
	r.t.Helper()
	eventually(r.t, "claims do not get their rows", func() bool {
		var stock struct{ Synced, Backlog int64 }
		got := call(r.t, http.MethodGet, r.url+"/v1/campaigns/"+campaign+"/stock", "")
		if got.status == http.StatusOK { // MySQL may be away for a moment
			got.into(r.t, &stock)
		}
		return stock.Synced == units && stock.Backlog == 0
	})
}

func eventually(t testing.TB, otherwise string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, within, 20*time.Millisecond, otherwise)
}

// servers are a test's own Redis and a migrated database on the shared
// SQL server.
type servers struct {
	t       testing.TB
	redis   *testenv.RedisServer
	rdb     *redis.Client
	dsn     string
	db      *sql.DB
	environ []string // names both
}

// newServers starts the servers; each conf is a line of redis.conf.
func newServers(t testing.TB, conf ...string) *servers {
	t.Helper()
	s := &servers{t: t, redis: testenv.Redis(t, conf...), dsn: testenv.Database(t).DSN}
	s.rdb = s.redis.Client()
	s.environ = []string{"DIBS_REDIS_URL=" + s.redis.URL(), "DIBS_MYSQL_DSN=" + s.dsn}
	s.db = openSQL(t, s.dsn)
	requireOK(t, run(t, s.environ, "migrate"))
	return s
}

func openSQL(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// exec changes the database without Dibs.
func (s *servers) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
}

// number reads one number.
func (s *servers) number(query string) (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}

// with adds lines that override the environment.
func (s *servers) with(lines ...string) []string { return slices.Concat(s.environ, lines) }

// state is a campaign's hash in Redis, see docs/keys.md.
func state(campaign string) string { return "dibs:{p0}:c:" + campaign }
