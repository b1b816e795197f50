package console_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/servetest"
	"dibs/internal/testkit/testenv"
)

type role struct {
	t   testing.TB
	cmd *exec.Cmd
}

// run starts a role in a separate process, and kills it after the test.
func run(t testing.TB, name string, environ []string) *role {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	said := &testenv.Buffer{}
	c := exec.Command(program)
	c.Env = slices.Concat([]string{roleVariable + "=" + name, "DIBS_NAME=" + name + "-1"}, environ)
	c.Stdout, c.Stderr = said, said
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, said)
		}
	})
	return &role{t, c}
}

// Pause returns once the process is stopped. While it still runs it could
// read the next entries, and the page would show no backlog.
func (r *role) Pause() {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(r.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		return os.IsNotExist(err) || err == nil && strings.Contains(string(stat), ") T ")
	}, within, time.Millisecond)
}

func (r *role) Resume() { require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGCONT)) }

// checks waits until the health strip shows these states by check, and good
// for all others.
func (b *browser) checks(want map[string]string) {
	b.t.Helper()
	for _, name := range []string{"API", "Redis", "MySQL", "Syncer", "Consumers", "Backlog", "Parked", "Drift"} {
		b.until(fmt.Sprintf("%q.split('|').includes(document.querySelector('[data-check=%s]').className)", cmp.Or(want[name], "good"), name))
	}
}

// saidOnce requires that the page says exactly once that a server doesn't
// answer.
func (b *browser) saidOnce(server string) {
	b.t.Helper()
	b.until("document.querySelectorAll('.strip p, [role=alert], #live').length > 0 && " +
		"[...document.querySelectorAll('.strip p, [role=alert], #live, td, dd')].filter((e) => e.innerText.includes('" + server + "') && e.innerText.includes('answer')" +
		" || e.innerText.includes('was last read')).length === 1")
}

// When one part is frozen, the page must blame only that part, and show
// what it can't read as unknown.
func TestNoFrozenPartIsMistakenForAnother(t *testing.T) {
	t.Parallel()
	chromium(t)
	redis, sql := testenv.Redis(t), testenv.SQLServer(t)
	environ := []string{
		"DIBS_REDIS_URL=" + redis.URL(), "DIBS_MYSQL_DSN=" + sql.DSN("dibs"), "DIBS_GROUPS=syncer", "DIBS_ADMIN_TOKEN=" + admin,
		"DIBS_VIEWER_TOKEN=" + viewer, "DIBS_IDLE_EVICT=1h", "PATH=" + os.Getenv("PATH"),
	}
	servetest.Migrate(t, environ...)
	s := &service{t: t, addr: machine.Addr(t)}
	s.url = "http://" + s.addr
	run(t, "api", append(slices.Clone(environ), "DIBS_HTTP_ADDR="+s.addr))
	consumer, syncer := run(t, "consumer", environ), run(t, "syncer", environ)
	s.ready()
	s.coupon("spring", 100, "")
	s.claim("spring", "ada", "bob")
	s.synced("spring")
	s.coupon("hot", 20, `,"shards":2`)
	s.claim("hot", "ada", "bob")
	s.synced("hot")
	p := s.person()
	p.signIn(admin)

	b := open(t, s)
	b.signIn(admin)
	b.checks(nil)
	b.text("All well.")
	b.until("document.querySelector('[data-id=spring] [data-figure=left]').textContent === '98'")

	sql.Pause()
	mysqlIsAway := map[string]string{"MySQL": "bad", "Parked": "unknown", "Drift": "unknown"}
	b.checks(mysqlIsAway)
	require.Contains(t, s.claim("spring", "cid")[0], `"seq":3`)
	b.visit("/console")
	b.checks(mysqlIsAway)
	b.text("Which campaigns there are is not known now. These are the ones that this process serves.")
	b.until("document.querySelector('[data-id=spring] [data-figure=left]').textContent === '97'")
	b.until("document.querySelector('#live').textContent === 'Live'")
	b.saidOnce("MySQL")
	b.accessible("overview without MySQL")
	started := time.Now()
	require.Contains(t, p.get("/console/campaigns/hot").text, "18 of 20", "Redis' figures, without a script")
	require.Less(t, time.Since(started), 1500*time.Millisecond)
	require.Contains(t, p.get("/console/find?q=ada").text, "not known now")
	b.visit("/console/campaigns/spring")
	b.text("97 of 100")
	b.text("how the campaign is defined and what is recorded of it is not known now")
	b.visit("/console/trouble")
	b.text("Not known now.")
	b.saidOnce("MySQL")
	sql.Resume()
	b.visit("/console")
	b.checks(nil)

	redis.Pause()
	redisIsAway := map[string]string{
		"Redis": "bad", "Syncer": "unknown", "Consumers": "unknown", "Backlog": "unknown", "Parked": "unknown", "Drift": "unknown",
	}
	b.checks(redisIsAway)
	b.visit("/console/campaigns/spring")
	b.text("Redis does not answer")
	b.until("document.body.classList.contains('old')")
	b.text("97 of 100")
	b.until("document.querySelector('[data-figure=accepted]').textContent === 'not known'")
	b.visit("/console")
	b.checks(redisIsAway)
	b.text("1 to 2 of 2 campaigns")
	b.saidOnce("Redis")
	b.accessible("overview without Redis")
	redis.Resume()
	b.checks(nil)

	syncer.Pause()
	b.checks(map[string]string{"Syncer": "bad", "Drift": "unknown"})
	b.visit("/console/processes")
	b.until("[...document.querySelectorAll('tr')].some((row) => row.innerText.startsWith('syncer') && row.innerText.includes('silent for'))")
	b.accessible("processes")
	syncer.Resume()
	b.visit("/console")
	b.checks(nil)

	consumer.Pause()
	s.claim("spring", "dan")
	b.checks(map[string]string{"Consumers": "bad", "Backlog": "warn|bad"})
	b.until("document.querySelector('[data-id=spring] [data-figure=backlog]').textContent === '1'")
	consumer.Resume()
	b.checks(nil)
	for _, line := range b.said() {
		require.Contains(t, line, "503", "nothing but what could not be answered")
	}
}
