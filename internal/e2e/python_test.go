package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/testenv"
	"dibs/lua"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// script is a process of docs/examples' finance service.
type script struct {
	t      *testing.T
	ledger *ledger
	books  *sql.DB // the file that it writes
	python string
	args   []string
	cmd    *exec.Cmd
	exited <-chan struct{}
	log    *testenv.Buffer // of the last run
}

func newScript(t *testing.T, l *ledger) *script {
	t.Helper()
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "python3 is not installed, and docs/examples/finance.py can't be tested without it: "+
		"run `make servers`, which installs it, or install it with your system's packages")
	path, err := filepath.Abs("../../docs/examples/finance.py")
	require.NoError(t, err)
	books := filepath.Join(t.TempDir(), "books.db")
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: books, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	s := &script{t: t, ledger: l, python: python, args: []string{
		path, "--redis", l.redisURL, "--books", books, "--group", "finance", "--name", "worker-1",
	}}
	scripts, err := lua.New(l.rdb, lua.Options{Partitions: l.partitions})
	require.NoError(t, err)
	require.NoError(t, scripts.PublishPartitions(t.Context())) // as the syncer does
	s.books, err = db.DB()
	require.NoError(t, err)
	t.Cleanup(s.kill9)
	return s
}

func (s *script) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.python, s.args...)
	s.log = new(testenv.Buffer)
	s.cmd.Stderr = s.log
	s.exited = spawn(s.t, s.cmd)
}

func (s *script) kill9() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.exited
	}
}

func (s *script) stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.exited
	require.Zero(s.t, s.cmd.ProcessState.ExitCode(), s.log.String())
}

func (s *script) report() (sum, entries int64, missing map[string]int64) {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), s.python, append(s.args, "--report")...).Output()
	require.NoError(s.t, err)
	var said struct {
		Sums    [][]any          `json:"sums"`
		Missing map[string]int64 `json:"missing"`
	}
	require.NoError(s.t, json.Unmarshal(out, &said))
	if len(said.Sums) == 0 {
		return 0, 0, said.Missing
	}
	require.Len(s.t, said.Sums, 1, "one currency")
	return int64(said.Sums[0][1].(float64)), int64(said.Sums[0][2].(float64)), said.Missing
}

func (s *script) credited() (n int) {
	if s.books.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM entries").Scan(&n) != nil {
		return -1 // its tables are not made yet
	}
	return n
}

// eventuallyAcked waits until the group has acknowledged every entry.
func (s *script) eventuallyAcked() {
	s.t.Helper()
	ctx := s.t.Context()
	done := func(stream string) bool {
		groups, err := s.ledger.rdb.XInfoGroups(ctx, stream).Result()
		if err != nil || len(groups) != 1 || groups[0].Pending != 0 {
			return false
		}
		newest, err := s.ledger.rdb.XRevRangeN(ctx, stream, "+", "-", 1).Result()
		return err == nil && len(newest) == 1 && newest[0].ID == groups[0].LastDeliveredID
	}
	require.Eventually(s.t, func() bool {
		for p := range s.ledger.partitions {
			if !done(lua.StreamKey(p)) {
				return false
			}
		}
		return true
	}, drainWithin, pollEvery)
}

func accountsIn(t testing.TB, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT user_id, currency, amount, entries FROM accounts")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var user, currency, amount, entries string
		require.NoError(t, rows.Scan(&user, &currency, &amount, &entries))
		all[user] = amount + currency + " in " + entries
	}
	require.NoError(t, rows.Err())
	return all
}

// docs/finance.md's service in another language is killed midway
// and restarted. It gets an event twice, an invalid entry and
// one that contradicts its accounts, and loses its group. Its
// accounts must equal those of Dibs' own service.
func TestPythonFinanceServiceKeepsTheSameBooks(t *testing.T) {
	t.Parallel()
	l := newLedger(t, setup{partitions: 2})
	s := newScript(t, l)
	total := testenv.Pick(3000, 100_000)
	l.publish(total / 2)
	s.start()
	require.Eventually(t, func() bool { return s.credited() > 100 }, upTimeout, time.Millisecond)
	s.kill9()
	halfway := s.credited()
	l.publish(total / 2)
	entry, err := l.rdb.XRangeN(t.Context(), lua.StreamKey(0), "-", "+", 1).Result()
	require.NoError(t, err)
	contrary := strings.ReplaceAll(entry[0].Values["payload"].(string), `"amount":1,`, `"amount":1000000,`)
	require.Contains(t, contrary, "1000000")
	add := func(fields ...any) string {
		id, err := l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: fields}).Result()
		require.NoError(t, err)
		return id
	}
	add("_watermill_message_uuid", "again", "metadata", "", "payload", entry[0].Values["payload"])
	contradicts := add("_watermill_message_uuid", "contrary", "metadata", "", "payload", contrary)
	add("junk", "1")
	s.start()
	s.eventuallyAcked()
	require.NoError(t, l.rdb.XGroupDestroy(t.Context(), lua.StreamKey(1), "finance").Err())
	s.eventuallyAcked()
	s.stop()
	events, amount := l.due()
	require.Less(t, halfway, events, "it was killed before it was done")

	parked, err := l.rdb.XRange(t.Context(), lua.ParkedKey(0, "finance"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, parked, 2)
	require.Contains(t, parked[0].Values["_dibs_reason"], "another entry has this id")
	require.Contains(t, parked[1].Values["_dibs_reason"], "not an event")
	sum, entries, _ := s.report()
	require.EqualValues(t, events, entries)
	require.Equal(t, amount, sum)

	// Dibs' own service must get the same result. Of two
	// contradictory events in one batch it takes either.
	require.NoError(t, l.rdb.XDel(t.Context(), lua.StreamKey(0), contradicts).Err())
	require.NoError(t, l.rdb.Del(t.Context(), lua.ParkedKey(0, "finance")).Err())
	for p := range 2 {
		require.NoError(t, l.rdb.XGroupDestroy(t.Context(), lua.StreamKey(p), "finance").Err())
	}
	l.launch("finance", nil)
	l.requireCredited()
	require.Equal(t, accountsIn(t, l.db), accountsIn(t, s.books))
}

// A service that reads only one of two streams would miss half
// of the events without seeing a gap. It must not start.
func TestPythonFinanceServiceReadsAllStreamsOrNone(t *testing.T) {
	t.Parallel()
	l := newLedger(t, setup{partitions: 2})
	s := newScript(t, l)
	l.publish(9)
	s.args = append(s.args, "--partitions", "1")
	s.start()
	<-s.exited
	require.Equal(t, 1, s.cmd.ProcessState.ExitCode())
	require.Contains(t, s.log.String(), "finance.py: --partitions is 1, and Dibs has 2 claim streams")
	require.Zero(t, s.credited())

	s.args = s.args[:len(s.args)-2]
	require.NoError(t, l.rdb.Del(t.Context(), lua.InfoKey).Err())
	s.start()
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "dibs:info is not in Redis") }, upTimeout, pollEvery)
	require.Zero(t, s.credited())
	require.NoError(t, l.rdb.HSet(t.Context(), lua.InfoKey, "partitions", 2).Err())
	s.eventuallyAcked()
	require.Equal(t, 9, s.credited())
	s.stop()
}

// Each coupon takes a seq in its campaign, and every packet's
// claim has an entry: a gap must show in the report.
func TestPythonFinanceServiceSeesAHole(t *testing.T) {
	t.Parallel()
	l := newLedger(t, setup{})
	s := newScript(t, l)
	l.publish(9) // seq 1 to 9, all of packets
	s.start()
	s.eventuallyAcked()
	_, _, missing := s.report()
	require.Empty(t, missing)
	l.publish(2) // seq 10 is a coupon's here, so 11 leaves a gap
	s.eventuallyAcked()
	_, _, missing = s.report()
	require.Equal(t, map[string]int64{"rain": 1}, missing)
	s.stop()
}

// Claims given up must credit nothing in the end, whether named
// by ids or by seqs.
func TestPythonFinanceServiceTakesBackWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	l := newLedger(t, setup{})
	s := newScript(t, l)
	tell := func() {
		payload := `{"v":1,"type":"claims.given_up","id":"gone","campaign_id":"rain","epoch":2,"at":"2027-03-14T15:09:26.535Z",` +
			`"ids":["019c0000-0000-7000-8000-000000000000","019c0000-0000-7000-8000-000000000010"],"seqs":[[3,4],[70,90]]}`
		require.NoError(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{
			"_watermill_message_uuid", "gone", "metadata", "", "payload", payload,
		}}).Err())
	}
	l.publish(9)                          // amounts of 1 to 9
	for shard := 1; shard <= 2; shard++ { // of one seq in two shards the first is given up
		claim := fmt.Sprintf(`{"v":1,"type":"claim.accepted","id":"of-%d","campaign_id":"storm","user_id":"ada","quantity":1,"seq":1,"shard":%d,`+
			`"at":"2027-03-14T15:09:26.535Z","packet_id":"p%d","amount":%d,"currency":"EUR"}`, shard, shard, shard, 1000*shard)
		gone := `{"v":1,"type":"claims.given_up","id":"gone-1","campaign_id":"storm","shard":1,"epoch":2,"at":"2027-03-14T15:09:26.535Z","seqs":[[1,1]]}`
		for _, payload := range []string{claim, gone} {
			require.NoError(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{
				"_watermill_message_uuid", "one", "metadata", "", "payload", payload,
			}}).Err())
		}
	}
	tell()
	tell()
	l.publish(2) // the last one was given up before it arrived
	tell()
	s.start()
	s.eventuallyAcked()
	sum, _, missing := s.report()
	require.EqualValues(t, 45-1-3-4+2000, sum)
	require.NotContains(t, missing, "storm#2")
	s.stop()
	require.NotContains(t, s.log.String(), "parked")
}
