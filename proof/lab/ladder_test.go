package lab_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/proof/lab"
)

// brief is the shortest possible run of some strategies.
func brief(entries ...string) lab.Workload {
	w := lab.DefaultWorkload()
	w.Strategies = entries
	w.Users = 20
	w.Units = 10
	w.Connections = 4
	w.Rounds = 1
	w.Duration = 50 * time.Millisecond
	w.Patience = 10 * time.Second
	return w
}

// No strategy may always come first. Each round must be kept,
// and the first one's lock.
func TestRoundsGoUpAndDownTheLadder(t *testing.T) {
	t.Parallel()
	w := brief("read-then-write", "set-nx-px")
	w.Rounds = 2
	var order []string
	report, err := lab.Run(t.Context(), lab.Options{
		Workload: w, RedisURL: testenv.Redis(t).URL(), MySQLDSN: testenv.Database(t).DSN, Self: self,
		Progress: func(done, total int, what string) {
			require.Equal(t, []int{len(order), 4}, []int{done, total})
			order = append(order, what)
		},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"read-then-write", "set-nx-px", "set-nx-px", "read-then-write", "done"}, order)
	for _, res := range report.Results {
		require.Len(t, res.Rounds, 2, res.Name)
		require.Zero(t, res.DibsRatio, "there is no Dibs to compare with")
	}
	require.Equal(t, "0", report.Results[0].Lock)
	require.Equal(t, "1, for 30 s", report.Results[1].Lock)
	require.WithinDuration(t, time.Now(), report.At, time.Minute)
	require.Len(t, report.Servers, 2)
	require.Regexp(t, `^Redis \d`, report.Servers[0])
	require.Regexp(t, `^(MariaDB|MySQL) \d+\.\d+\.\d+$`, report.Servers[1])
}

// A lab must remove what it made, and nothing else: neither
// others' keys, including other labs', nor tables.
func TestARunLeavesWhatIsOthersAlone(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Redis(t), testenv.Database(t)
	rdb := redis.Client()
	pool, err := sql.Open("mysql", db.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	_, err = pool.ExecContext(t.Context(), "CREATE TABLE lab_stock (campaign_id VARCHAR(64) PRIMARY KEY, remaining BIGINT)")
	require.NoError(t, err)
	for _, key := range []string{"mine", "dibs:lab:{another-run}:stock", "dibs:lab:x"} {
		require.NoError(t, rdb.Set(t.Context(), key, "1", 0).Err())
	}
	_, err = lab.Run(t.Context(), lab.Options{Workload: brief("lua-update"), RedisURL: redis.URL(), MySQLDSN: db.DSN, Self: self, Progress: quiet})
	require.NoError(t, err)
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"mine", "dibs:lab:{another-run}:stock", "dibs:lab:x"}, keys)
	var rows int
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lab_stock").Scan(&rows))
	require.Zero(t, rows, "it works in a database of its own")
}

// A Redis that dies must end the run soon and with its reason.
// What the run made in MySQL must be removed.
func TestAServerThatDiesEndsTheRun(t *testing.T) {
	t.Parallel()
	redis, own := testenv.Redis(t), testenv.SQLServer(t)
	var killed atomic.Bool
	w := brief("for-update", "set-nx-px")
	w.Patience = time.Second
	_, err := lab.Run(t.Context(), lab.Options{
		Workload: w, RedisURL: redis.URL(), MySQLDSN: own.DSN("x"), Self: self,
		Progress: func(_, _ int, what string) {
			if what == "set-nx-px" && killed.CompareAndSwap(false, true) {
				redis.Kill()
			}
		},
	})
	require.ErrorContains(t, err, "set-nx-px", "which entry it was")
	require.ErrorContains(t, err, "refused")
	pool, err := sql.Open("mysql", own.DSN("x"))
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	var left int
	require.NoError(t, pool.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'dibs\\_lab\\_%'").Scan(&left))
	require.Zero(t, left)
}

// Dibs' own strategies must keep the same contract, and MySQL must follow.
func TestDibsStrategiesSellRightAndBookIt(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"dibs-packages", "dibs-http"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBenchAt(t, entry, 3, lab.Servers{RedisURL: testenv.Redis(t).URL(), MySQLDSN: testenv.Database(t).DSN})
			one := b.claimer()
			other := one // two of dibs-http in one process would have the same idempotency keys
			if entry == "dibs-packages" {
				other = b.claimer()
			}
			require.Equal(t, lab.Claimed, b.claim(one, "ada"))
			require.Equal(t, lab.OverLimit, b.claim(other, "ada"))
			require.Equal(t, lab.Claimed, b.claim(other, "bob"))
			require.Equal(t, lab.Claimed, b.claim(one, "eve"))
			require.Equal(t, lab.SoldOut, b.claim(other, "late"))
			require.NoError(t, one.(lab.Settler).Settle(t.Context()))
			var rows, remaining int64
			require.NoError(t, b.env.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM claims").Scan(&rows))
			require.NoError(t, b.env.DB.QueryRowContext(t.Context(), "SELECT remaining FROM campaigns").Scan(&remaining))
			require.Equal(t, []int64{3, 0}, []int64{rows, remaining})
			b.env.Campaign.ID += "-never"
			_, err := b.claimer().Claim(t.Context(), "ada")
			require.Error(t, err, "a campaign that there is not is no sell-out")
		})
	}
}

// An unexpected reply of Dibs must end a lab with Dibs' own message.
func TestAnAnswerThatNoLabExpectsIsAnError(t *testing.T) {
	t.Parallel()
	var code atomic.Value
	code.Store("on fire")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if code.Load() == "" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, `{"code":%q}`, code.Load())
	}))
	defer server.Close()
	entry, _ := lab.StrategyNamed("dibs-http")
	s, err := entry.New(lab.Env{Servers: lab.Servers{Endpoint: server.URL}, Terms: lab.Terms{Campaign: lab.Campaign{ID: "x"}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for what, do := range map[string]func() error{
		"prepare": func() error { return s.Prepare(t.Context()) },
		"settle":  func() error { return s.(lab.Settler).Settle(t.Context()) },
		"claim":   func() error { _, err := s.Claim(t.Context(), "ada"); return err },
	} {
		require.ErrorIs(t, do(), lab.ErrDibs, what)
		require.ErrorContains(t, do(), "on fire", what)
	}
	code.Store("unavailable")
	outcome, err := s.Claim(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, lab.Busy, outcome)
	code.Store("")
	_, err = s.Claim(t.Context(), "ada")
	require.Error(t, err)
	_, err = entry.New(lab.Env{})
	require.ErrorIs(t, err, lab.ErrConfig, "without an endpoint there is no one to ask")
}
