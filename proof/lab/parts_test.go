package lab

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// says is Dibs as a server that answers every request with the same bytes.
func says(t *testing.T, answer string) *dibsHTTP {
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
	s, err := openDibs(Env{Place: Place{Endpoint: "http://" + listener.Addr().String()}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAnAnswerIsReadOrRefused(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		answer string
		status int // 0: refused
		body   string
	}{
		"plain":             {"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 201, "ok"},
		"nothing":           {"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n", 200, ""},
		"less than it says": {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", 0, ""},
		"no HTTP":           {"SSH-2.0-x\r\n", 0, ""},
		"silence":           {"", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := says(t, one.answer)
			for range 2 { // the connection is gone each time, and the next is dialled
				status, body, err := s.do(t.Context(), "POST", "/", "{}")
				require.Equal(t, one.status == 0, err != nil, "%v", err)
				if err == nil {
					require.Equal(t, one.status, status)
					require.Equal(t, one.body, string(body))
				}
			}
		})
	}
}

func TestDibsIsAskedOverHTTP(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:80", "https://127.0.0.1", "ftp://x", "http://", "http://a b"} {
		_, err := openDibs(Env{Place: Place{Endpoint: base}})
		require.ErrorIs(t, err, ErrConfig, base)
	}
	s, err := openDibs(Env{Place: Place{Endpoint: "http://127.0.0.1:1"}})
	require.NoError(t, err, "no connections are one")
	defer func() { require.NoError(t, s.Close()) }()
	_, _, err = s.do(t.Context(), "GET", "/", "")
	require.ErrorContains(t, err, "refused")
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
		e := &Env{Terms: Terms{Patience: time.Second, RetryPause: 20 * time.Millisecond}}
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
	env := Env{Redis: rdb, Terms: Terms{Campaign: Campaign{ID: testenv.UniqueID(t, "lab")}}}
	left := func() string {
		t.Helper()
		l, err := lockLeft(t.Context(), env)
		require.NoError(t, err)
		return l
	}
	require.Equal(t, "0", left())
	require.NoError(t, rdb.Set(t.Context(), env.lockKey(), "x", 0).Err())
	require.Equal(t, "1, for ever", left())
	require.NoError(t, rdb.PExpire(t.Context(), env.lockKey(), 30*time.Second).Err())
	require.Regexp(t, `^1, for (30|2\d) s$`, left())
	_ = rdb.Close()
	_, err := lockLeft(t.Context(), env)
	require.Error(t, err, "a server that does not say is not one without a lock")
}

// What servers did is what their counters say; of MySQL's the reading itself is one.
func TestUsageIsWhatWasDone(t *testing.T) {
	t.Parallel()
	own := testenv.SQLServer(t) // of which no one else asks
	env, closeAll, err := openEnv(Place{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: own.DSN("")}, Terms{Connections: 1}, 1)
	require.NoError(t, err)
	defer closeAll()
	cpu, statements, err := env.usage(t.Context())
	require.NoError(t, err)
	require.Positive(t, cpu)
	for range 5 {
		_, err := env.DB.ExecContext(t.Context(), "DO 1")
		require.NoError(t, err)
	}
	cpuAfter, statementsAfter, err := env.usage(t.Context())
	require.NoError(t, err)
	// A connection of the server's start may end meanwhile, which is one more.
	require.Contains(t, []int64{6, 7}, statementsAfter-statements)
	require.GreaterOrEqual(t, cpuAfter, cpu)
}

func TestAPlaceThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	good := Place{RedisURL: "redis://127.0.0.1:1", MySQLDSN: "root@tcp(127.0.0.1:1)/x"}
	for words, p := range map[string]Place{
		"redis url": {RedisURL: "nonsense", MySQLDSN: good.MySQLDSN}, "mysql dsn": {RedisURL: good.RedisURL, MySQLDSN: "nonsense"},
	} {
		_, _, err := openEnv(p, Terms{Connections: 1}, 1)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, words)
	}
	host := testenv.NewProgram(t.Context())
	place, err := openServers(host, good)
	require.NoError(t, err, "servers that are given are not started")
	require.Equal(t, good, place)
	require.NoError(t, host.Close())
}
