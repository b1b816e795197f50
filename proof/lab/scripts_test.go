package lab

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// never is longer than any test: the test triggers the flushes.
const never = time.Hour

func row(t *testing.T, env Env) (remaining int64) {
	t.Helper()
	require.NoError(t, env.DB.QueryRowContext(t.Context(), "SELECT remaining FROM lab_stock WHERE campaign_id = ?", env.Campaign.ID).Scan(&remaining))
	return remaining
}

func claims(t *testing.T, s Strategy, prefix string, n int) {
	t.Helper()
	for i := range n {
		outcome, err := s.Claim(t.Context(), fmt.Sprint(prefix, i))
		require.NoError(t, err)
		require.Equal(t, Claimed, outcome)
	}
}

// A process that ends normally flushes its sum. A crashed one loses it.
func TestACrashLosesTheSumOfAProcess(t *testing.T) {
	t.Parallel()
	_, env := contestOf(t, "sum-flush")
	well := newFlusher(env, (*flusher).writeSum, never)
	crashes := newFlusher(env, (*flusher).writeSum, never)
	claims(t, well, "a", 3)
	claims(t, crashes, "b", 4)
	require.EqualValues(t, 10, row(t, env), "both sums are in memory")
	require.NoError(t, well.Close())
	crashes.stop() // and nothing else happens in it
	crashes.ended.Wait()
	stock, err := env.Redis.Get(t.Context(), env.stockKey()).Int64()
	require.NoError(t, err)
	require.EqualValues(t, 3, stock)
	require.EqualValues(t, 7, row(t, env), "4 units are sold that MySQL says remain")
}

// A failed flush must keep the sum for the next.
func TestASumOutlivesAFlushThatFails(t *testing.T) {
	t.Parallel()
	_, env := contestOf(t, "sum-flush")
	s := newFlusher(env, (*flusher).writeSum, never)
	claims(t, s, "a", 3)
	_, err := env.DB.ExecContext(t.Context(), "RENAME TABLE lab_stock TO away")
	require.NoError(t, err)
	require.Error(t, s.flush(s, t.Context()))
	_, err = env.DB.ExecContext(t.Context(), "RENAME TABLE away TO lab_stock")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.EqualValues(t, 7, row(t, env))
}

// A hold ends and MySQL takes the unit back, or stock is added.
// The next copy loses either.
func TestACopyOverwritesAnExpiryAndARestock(t *testing.T) {
	t.Parallel()
	for what, units := range map[string]int{"a hold that ended": 1, "a restock": 100} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, env := contestOf(t, "copy-stock")
			s := newFlusher(env, (*flusher).copyLeft, never)
			claims(t, s, "a", 4)
			require.NoError(t, s.flush(s, t.Context()))
			require.EqualValues(t, 6, row(t, env))
			_, err := env.DB.ExecContext(t.Context(), "UPDATE lab_stock SET remaining = remaining + ? WHERE campaign_id = ?", units, env.Campaign.ID)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.EqualValues(t, 6, row(t, env), "%d units are gone from both", units)
		})
	}
}

// Of two copying processes, the later writer wins, not the later reader.
func TestALateCopyOverwritesANewerOne(t *testing.T) {
	t.Parallel()
	_, env := contestOf(t, "copy-stock")
	slow := newFlusher(env, (*flusher).copyLeft, never)
	fast := newFlusher(env, (*flusher).copyLeft, never)
	stale, err := slow.left(t.Context())
	require.NoError(t, err)
	claims(t, fast, "a", 9)
	require.NoError(t, fast.Close())
	require.EqualValues(t, 1, row(t, env))
	require.NoError(t, slow.overwrite(t.Context(), stale))
	require.EqualValues(t, 10, row(t, env), "1 unit remains")
	require.NoError(t, slow.Close())
	require.EqualValues(t, 1, row(t, env), "right again, until the next late copy")
}
