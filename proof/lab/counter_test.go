package lab_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/proof/lab"
)

// The flaws of the strategies without a lock, and what mends each.

func TestReadThenWriteSellsTheLastUnitTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, "read-then-write", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow), "the one unit is sold a second time")
}

func TestMutexMendsReadThenWriteInOneProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, "mutex", 1)
	g := newGate(lab.StepRead)
	shared := b.claimer(at(g.at))
	slow := b.held(shared, g, "slow")

	quick := b.background(shared, "quick")
	require.Equal(t, int64(1), b.stock(), "the second waits")
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
	require.Equal(t, verdict{lab.SoldOut, nil}, wait(t, quick))
}

func TestSecondProcessBreaksTheMutex(t *testing.T) {
	t.Parallel()
	b := newBench(t, "mutex", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.EqualValues(t, 1, b.elsewhere("quick")[lab.Claimed])
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow), "two processes sold the one unit")
}

// TestLocksInRedisMendWhatTwoProcessesBreak is the control of the test above: each lock that all can see keeps the second
// process waiting.
func TestLocksInRedisMendWhatTwoProcessesBreak(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"setnx", "setnx-defer", "setnx-expire", "set-nx-px", "owner-token", "watchdog", "lock-per-coupon"} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, entry, 1)
			g := newGate(lab.StepRead)
			slow := b.held(b.claimer(at(g.at)), g, "slow")
			b.env.Patience = shortly

			require.EqualValues(t, 1, b.elsewhere("quick")[lab.Busy])
			close(g.opened)
			require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
			require.EqualValues(t, -2, b.lock(), "and the lock is given back")
		})
	}
}

func TestPipelineLetsOthersInBetweenItsReadsAndItsWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t, "pipeline", 1)
	g := newGate(lab.StepRead)
	slow := b.held(b.claimer(at(g.at)), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.Claimed, nil}, wait(t, slow))
	require.Equal(t, int64(-1), b.stock(), "sold once more than there was")
}

// TestPipelineLetsOthersInBetweenItsCommands sends one pipeline in two pieces, as a network may, and someone in between.
// With MULTI and EXEC around it the other one comes first or last.
func TestPipelineLetsOthersInBetweenItsCommands(t *testing.T) {
	t.Parallel()
	server := testenv.SharedRedis(t)
	rdb := server.Client()
	for name, c := range map[string]struct {
		before, after string
		first         string // what the pipeline's first read must say, its second says the same or "other"
		torn          bool
	}{
		"pipeline": {torn: true},
		"multi":    {before: command("MULTI"), after: command("EXEC")},
	} {
		t.Run(name, func(t *testing.T) {
			key := testenv.UniqueID(t, "pipeline")
			conn, err := net.Dial("tcp", server.Addr())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			replies := bufio.NewReader(conn)

			// PING is answered at once, so its answer tells that Redis has worked off the first piece.
			send(t, conn, command("PING")+c.before+command("SET", key, "mine"))
			require.Equal(t, "+PONG", reply(t, replies))
			require.Equal(t, "+", reply(t, replies)[:1])
			if c.before != "" {
				require.Equal(t, "+QUEUED", reply(t, replies))
			}
			require.NoError(t, rdb.Set(t.Context(), key, "other", 0).Err())
			send(t, conn, command("GET", key)+c.after)
			var rest []string
			for range map[bool]int{true: 2, false: 5}[c.torn] {
				rest = append(rest, reply(t, replies))
			}
			want := "mine"
			if c.torn {
				want = "other"
			}
			require.Equal(t, want, rest[len(rest)-1], "what the pipeline reads after it wrote")
		})
	}
}

// command is a command in Redis' protocol.
func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
}

// reply reads one line of Redis' protocol.
func reply(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	text, err := from.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

func TestWatchStartsAgainWhenOthersCameInBetween(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 1)
	g := newGate(lab.StepRead)
	tries := 0
	slow := b.held(b.claimer(at(func(step lab.Step) error {
		tries++
		return g.at(step)
	})), g, "slow")

	require.Equal(t, lab.Claimed, b.claim(b.claimer(), "quick"))
	close(g.opened)
	require.Equal(t, verdict{lab.SoldOut, nil}, wait(t, slow))
	require.Equal(t, 2, tries, "the first transaction was not done, the second found nothing left")
	require.Equal(t, int64(0), b.stock())
}

func TestWatchGivesUpUnderACrowd(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 1000)
	// Someone comes in between each time.
	harried := b.claimer(patience(shortly), at(func(lab.Step) error {
		return b.env.Redis.Decr(t.Context(), lab.KeyOf(b.env, "stock")).Err()
	}))
	require.Equal(t, lab.Busy, b.claim(harried, "user"))
}

func TestExecRollsNothingBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, "watch", 5)
	taken := lab.KeyOf(b.env, "taken")
	require.NoError(t, b.env.Redis.Set(t.Context(), taken, "no list", 0).Err())

	_, err := b.claimer().Claim(t.Context(), "user")
	require.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"), "%v", err)
	require.Equal(t, int64(4), b.stock(), "the failed claim has taken a unit all the same")
}
