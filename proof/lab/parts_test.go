package lab

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/models"
)

// says is a server that answers every request with the same bytes.
func says(t *testing.T, answer string) *wire {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	w, err := newWire("http://"+listener.Addr().String(), 1)
	require.NoError(t, err)
	t.Cleanup(w.close)
	return w
}

func TestAnAnswerIsReadOrRefused(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		answer string
		status int // 0: refused
		body   string
		words  string
	}{
		"plain":             {"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", 201, "ok", ""},
		"nothing":           {"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", 204, "", ""},
		"more than it says": {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok", 200, "o", ""},
		"less than it says": {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", 0, "", "EOF"},
		"no length":         {"HTTP/1.1 200 OK\r\n\r\nok", 0, "", "length is -1"},
		"too long":          {"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", 0, "", "length is 1048577"},
		"a length of words": {"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", 0, "", "two"},
		"another protocol":  {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 0, "", "HTTP/1.0"},
		"no status":         {"HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", 0, "", "abc"},
		"no HTTP":           {"SSH-2.0-x\r\n", 0, "", "SSH"},
		"silence":           {"", 0, "", "EOF"},
		"half a head":       {"HTTP/1.1 200 OK\r\nContent-", 0, "", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := says(t, one.answer)
			for range 2 { // the connection is gone each time, and the next is dialled
				status, body, err := w.post(t.Context(), "/", "k", []byte("{}"))
				if one.status == 0 {
					require.Error(t, err)
					require.ErrorContains(t, err, one.words)
					return
				}
				if err != nil { // the server hung up on a kept connection: told, and dialled again
					continue
				}
				require.Equal(t, one.status, status)
				require.Equal(t, one.body, string(body))
			}
		})
	}
}

func TestAWireGoesToAnHTTPServer(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:80", "https://127.0.0.1", "ftp://x", "http://", "http://a b"} {
		_, err := newWire(base, 1)
		require.ErrorIs(t, err, ErrConfig, base)
	}
	w, err := newWire("http://127.0.0.1:1", 0)
	require.NoError(t, err, "no connections are one")
	defer w.close()
	_, _, err = w.post(t.Context(), "/", "k", nil)
	require.ErrorContains(t, err, "refused")
}

func TestARequestIsOneThatServersRead(t *testing.T) {
	t.Parallel()
	c := &wireConn{}
	for _, body := range []string{`{"user_id":"a"}`, ""} { // the buffer is used again
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(c.request("host:80", "/v1/x", "key-1", []byte(body))))))
		require.NoError(t, err)
		got, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		require.Equal(t, []string{"POST", "/v1/x", "host:80", "key-1", "application/json", body},
			[]string{req.Method, req.URL.Path, req.Host, req.Header.Get("Idempotency-Key"), req.Header.Get("Content-Type"), string(got)})
	}
}

func TestWhatDibsSaysHasItsWordInTheLab(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]Outcome{"sold_out": SoldOut, "user_limit": OverLimit, "unavailable": Busy} {
		got, err := refusalOf(409, []byte(`{"code":"`+code+`","detail":"x"}`))
		require.NoError(t, err)
		require.Equal(t, want, got, code)
	}
	for _, answer := range []string{"", "{}", "no JSON", `{"code":"outcome_unknown"}`, `{"code":"paused"}`} {
		_, err := refusalOf(503, []byte(answer))
		require.ErrorIs(t, err, ErrDibs, answer)
		require.ErrorContains(t, err, "503")
	}
	for outcome, want := range map[models.Outcome]Outcome{
		models.OutcomeClaimed: Claimed, models.OutcomeReplayed: Claimed, models.OutcomeSoldOut: SoldOut, models.OutcomeUserLimit: OverLimit,
	} {
		got, err := outcomeOf(outcome)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, outcome := range []models.Outcome{models.OutcomeAbsent, models.OutcomePaused, models.OutcomeDamaged, ""} {
		_, err := outcomeOf(outcome)
		require.ErrorContains(t, err, string(outcome), "a lab with such an answer is no lab")
	}
}

func TestBooksAreWaitedForAndNotForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		require.NoError(t, settle(t.Context(), func(context.Context) (bool, error) { polls++; return polls == 50, nil }))
		require.Equal(t, 50, polls)
		broken := errors.New("redis is away")
		require.ErrorIs(t, settle(t.Context(), func(context.Context) (bool, error) { return false, broken }), broken)
		begun := time.Now()
		require.ErrorIs(t, settle(t.Context(), func(context.Context) (bool, error) { return false, nil }), ErrBooks)
		require.Equal(t, settleMax, time.Since(begun).Round(settlePoll))
	})
}

// A waiter asks at times that are spread around its pause, and gives up rather than ask after its patience.
func TestAWaiterAsksUntilItsPatienceIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &Env{Patience: time.Second, RetryPause: 20 * time.Millisecond}
		tries := 0
		begun := time.Now()
		had, err := e.acquire(t.Context(), func(context.Context) (bool, error) { tries++; return false, nil })
		require.NoError(t, err)
		require.False(t, had)
		require.LessOrEqual(t, time.Since(begun), e.Patience)
		require.InDelta(t, 50, tries, 15)

		tries = 0
		had, err = e.acquire(t.Context(), func(context.Context) (bool, error) { tries++; return tries == 3, nil })
		require.NoError(t, err)
		require.True(t, had)
		broken := errors.New("redis is away")
		_, err = e.acquire(t.Context(), func(context.Context) (bool, error) { return false, broken })
		require.ErrorIs(t, err, broken)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err = e.acquire(ctx, func(context.Context) (bool, error) { return false, nil })
		require.ErrorIs(t, err, context.Canceled)
		for range 200 {
			pause := e.pause()
			require.GreaterOrEqual(t, pause, e.RetryPause/2)
			require.Less(t, pause, 3*e.RetryPause/2)
		}
	})
}

func TestALockIsGivenBackThoughItsClaimIsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sold, failed := errors.New("sale failed"), errors.New("release failed")
	err := sold
	give(ctx, &err, func(ctx context.Context) error {
		require.NoError(t, ctx.Err(), "not over with the claim")
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		return failed
	})
	require.ErrorIs(t, err, sold)
	require.ErrorIs(t, err, failed)
	err = nil
	give(ctx, &err, func(context.Context) error { return nil })
	require.NoError(t, err)
}

func TestWhatAKilledHolderLeftIsSeen(t *testing.T) {
	t.Parallel()
	rdb := testenv.SharedRedis(t).Client()
	env := Env{Redis: rdb, Campaign: Campaign{ID: testenv.UniqueID(t, "lab")}}
	left := func() Lock {
		t.Helper()
		l, err := lockLeft(t.Context(), env)
		require.NoError(t, err)
		return l
	}
	require.Zero(t, left())
	require.NoError(t, rdb.Set(t.Context(), env.lockKey(), "x", 0).Err())
	require.Equal(t, Lock{Left: 1, ForEver: true}, left())
	require.NoError(t, rdb.PExpire(t.Context(), env.lockKey(), 30*time.Second).Err())
	l := left()
	require.False(t, l.ForEver)
	require.InDelta(t, 30_000, l.EndsMs, 10_000)
	_ = rdb.Close()
	_, err := lockLeft(t.Context(), env)
	require.Error(t, err, "a server that does not say is not one without a lock")
}

// What servers did is counted between two readings, without the second reading itself.
func TestUsageIsWhatWasDoneInBetween(t *testing.T) {
	t.Parallel()
	require.Equal(t, usage{redisCPU: 2 * time.Second, statements: 9}, usage{5 * time.Second, 110}.since(usage{3 * time.Second, 100}))
	require.Zero(t, usage{statements: 5}.since(usage{statements: 5}).statements, "never below nothing")
	own := testenv.SQLServer(t) // of which no one else asks
	env, closeAll, err := openEnv(Place{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: own.DSN("")}, 1, 1)
	require.NoError(t, err)
	defer closeAll()
	before, err := env.readUsage(t.Context())
	require.NoError(t, err)
	for range 5 {
		_, err := env.DB.ExecContext(t.Context(), "DO 1")
		require.NoError(t, err)
	}
	after, err := env.readUsage(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, after.since(before).statements)
	require.GreaterOrEqual(t, after.redisCPU, before.redisCPU)
	require.Positive(t, after.redisCPU)
}

func TestAPlaceThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	good := Place{RedisURL: "redis://127.0.0.1:1", MySQLDSN: "root@tcp(127.0.0.1:1)/x"}
	for words, p := range map[string]Place{
		"redis url": {RedisURL: "nonsense", MySQLDSN: good.MySQLDSN}, "mysql dsn": {RedisURL: good.RedisURL, MySQLDSN: "nonsense"},
	} {
		_, _, err := openEnv(p, 1, 1)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, words)
	}
	s, err := openServers(t.Context(), good)
	require.NoError(t, err, "servers that are given are not started")
	require.Equal(t, good, s.place)
	require.NoError(t, s.Close())
	_, err = Run(t.Context(), Options{RedisURL: good.RedisURL, MySQLDSN: good.MySQLDSN})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "Self")
}
