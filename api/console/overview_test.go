package console_test

import (
	"database/sql"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

// statementsMax is how many SQL statements the first page may take, however many campaigns there are.
const statementsMax = 5

// TestTheFirstPageTakesFewStatements, counted by the SQL server, and finds every campaign by search, status and page.
func TestTheFirstPageTakesFewStatements(t *testing.T) {
	t.Parallel()
	server := testenv.SQLServer(t)
	environ := []string{
		"DIBS_REDIS_URL=" + testenv.Redis(t).URL(), "DIBS_MYSQL_DSN=" + server.DSN("dibs"), "DIBS_GROUPS=syncer", "DIBS_ADMIN_TOKEN=" + admin,
		"PATH=" + os.Getenv("PATH"),
	}
	require.Zero(t, cmd.Run(t.Context(), cmd.Env{Args: []string{"migrate"}, Environ: environ, Stdout: io.Discard, Stderr: os.Stderr}))
	s := &service{t: t, addr: testenv.Addr(t)}
	s.url = "http://" + s.addr
	run(t, "api", append(environ, "DIBS_HTTP_ADDR="+s.addr))
	s.ready()
	for i := range 120 {
		s.coupon(fmt.Sprintf("c-%03d", i), 10, fmt.Sprintf(`,"name":"Sale %d"`, i))
	}
	p := s.person()
	p.signIn(admin)
	require.Contains(t, p.get("/console").text, "1 to 50 of 120 campaigns")
	require.Contains(t, p.get("/console?sort=id&page=2").text, "101 to 120 of 120 campaigns")
	require.Contains(t, p.get("/console?q=c-11").text, "1 to 10 of 10 campaigns")
	s.api("PATCH", "/v1/campaigns/c-007", `{"status":"paused"}`)
	s.api("POST", "/v1/campaigns/c-008/close", "")
	for status, id := range map[string]string{"paused": "c-007", "closed": "c-008"} {
		require.Contains(t, p.get("/console?status="+status).text, "1 to 1 of 1 campaign")
		require.Contains(t, p.get("/console?status="+status).text, id)
	}

	config, err := mysql.ParseDSN(server.DSN("mysql"))
	require.NoError(t, err)
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { require.NoError(t, db.Close()) }()
	for _, statement := range []string{"SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = 1"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	count := func() (n int) {
		_, err := db.ExecContext(t.Context(), "TRUNCATE TABLE mysql.general_log")
		require.NoError(t, err)
		require.Equal(t, 200, p.get("/console").status)
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')"+
			" AND argument NOT LIKE '%general_log%'").Scan(&n))
		return n
	}
	var seen []int
	require.Eventually(t, func() bool { // other statements of the process come in between
		seen = append(seen, count())
		return seen[len(seen)-1] <= statementsMax
	}, within, 10*time.Millisecond, "%v", &seen)
	require.Positive(t, seen[len(seen)-1])
}

// TestAnEmptyInstallationIsWell: nobody has claimed, so there are no streams and groups yet.
func TestAnEmptyInstallationIsWell(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.person()
	p.signIn(viewer)
	require.Eventually(t, func() bool { return strings.Contains(p.get("/console/health").text, "All well.") }, within, 50*time.Millisecond)
}
