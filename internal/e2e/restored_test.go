package e2e

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// sqlTool runs a client program of MariaDB or MySQL with a file as its input.
func sqlTool(t *testing.T, names []string, addr, input string, args ...string) []byte {
	t.Helper()
	var program string
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		t.Skipf("NOT TESTED: none of %v is installed", names)
	}
	if addr != "" {
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		args = append([]string{"--no-defaults", "--host=" + host, "--port=" + port, "--protocol=tcp", "--user=root"}, args...)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	if input != "" {
		in, err := os.Open(input)
		require.NoError(t, err)
		defer func() { _ = in.Close() }()
		cmd.Stdin = in
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s %v: %s", program, args, errs.String())
	return out.Bytes()
}

var (
	sqlDump   = []string{"mariadb-dump", "mysqldump"}
	sqlClient = []string{"mariadb", "mysql"}
	sqlBinlog = []string{"mariadb-binlog", "mysqlbinlog"}
)

// dumped is a dump's position in the binary log.
type dumped struct {
	file, position string
}

var dumpedAt = regexp.MustCompile(`(?:MASTER|SOURCE)_LOG_POS=(\d+)`)

func toolsOfMariaDB() bool {
	_, err := exec.LookPath("mariadb-dump")
	return err == nil
}

// dumpSQL dumps the database as docs/dba.md says.
func (s *system) dumpSQL() dumped {
	s.t.Helper()
	args := []string{"--single-transaction", "--master-data=2"}
	if !toolsOfMariaDB() { // which has no GTIDs in dumps
		args = []string{"--single-transaction", "--source-data=2", "--set-gtid-purged=OFF"}
	}
	text := sqlTool(s.t, sqlDump, s.sql.Addr(), "", append(args, "dibs")...)
	found := dumpedAt.FindSubmatch(text)
	require.NotNil(s.t, found, "%.2000s", text)
	d := dumped{filepath.Join(s.t.TempDir(), "dump.sql"), string(found[1])}
	require.NoError(s.t, os.WriteFile(d.file, text, 0o600))
	return d
}

// restoreSQL restores a dump and, given a binary log, rolls forward.
func (s *system) restoreSQL(d dumped, log string) {
	s.t.Helper()
	forward := ""
	if log != "" {
		logs := strings.Split(strings.TrimSpace(string(sqlTool(s.t, sqlClient, s.sql.Addr(), "", "--batch", "--skip-column-names", "-e", "SHOW BINARY LOGS"))), "\n")
		status := strings.Fields(logs[len(logs)-1])
		file, end := status[0], status[1]
		args := []string{"--no-defaults", "--disable-log-bin", "--start-position=" + d.position, "--stop-position=" + end}
		if !toolsOfMariaDB() {
			// the server has these and would skip them
			args = append(args, "--skip-gtids")
		}
		text := sqlTool(s.t, sqlBinlog, "", "", append(args, filepath.Join(filepath.Dir(log), file))...)
		forward = filepath.Join(s.t.TempDir(), "forward.sql")
		require.NoError(s.t, os.WriteFile(forward, text, 0o600))
	}
	sqlTool(s.t, sqlClient, s.sql.Addr(), "", "-e", "DROP DATABASE dibs; CREATE DATABASE dibs")
	sqlTool(s.t, sqlClient, s.sql.Addr(), d.file, "dibs")
	if forward != "" {
		sqlTool(s.t, sqlClient, s.sql.Addr(), forward)
	}
}

// MySQL is dumped under load and restored while the API goes on. Without the
// binary log, missing rows must come back from the claim stream; with it,
// none may be missing. Nothing is stopped.
func TestARestoredMySQLLosesNoAnsweredClaim(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"the dump alone", "rolled forward by the binary log"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			forward, log := strings.HasPrefix(how, "rolled"), filepath.Join(t.TempDir(), "bin")
			s := newSystem(t, setup{
				apis: 2, consumers: 2, ownSQL: true, sqlOptions: []string{"--log-bin=" + log, "--server-id=1"},
				settings: map[string]string{"DIBS_STREAM_KEEP": "1h"},
			})
			users := testenv.Pick(3_000, 30_000)
			c := openCampaign(t, s.apis[0].url, campaign{Total: int64(users) * 8 / 10, PerUser: 3})
			idle := openCampaign(t, s.apis[0].url, campaign{Total: 10})
			rush := startRush(t, crowd.Plan{
				BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 20, PerSecond: 1_000,
				Quantity: func(user int) int64 { return int64(user%2) + 1 },
				Again:    func(user int) bool { return user%10 == 0 },
			})
			rush.reaches(users * 2 / 10)
			d := s.dumpSQL()
			rush.reaches(users * 4 / 10)
			roles := append(append([]*process{}, s.consumers...), s.syncers...)
			for _, p := range roles {
				p.kill9()
			}
			if forward {
				s.restoreSQL(d, log)
			} else {
				s.restoreSQL(d, "")
			}
			for _, p := range roles {
				p.restart()
			}
			tally := rush.wait()
			b := s.books(c, tally, true)
			b.refilled = !forward
			require.Empty(t, b.violations(t.Context()))
			eventually(t, 30*time.Second, "the idle campaign is not back", func() bool {
				return claimOnce(t, s.apis[0].url, idle.ID, "anybody", 1, "").status == http.StatusCreated
			})
			eventually(t, 30*time.Second, "dibs reconcile does not agree", func() bool {
				return runDibs(t, s.settings, "reconcile").code == exitOK
			})
			t.Logf("%d claims, %d answers unavailable, %d unknown, in %s", tally.Accepted, tally.Unready, tally.Unknown, tally.Took)
		})
	}
}
