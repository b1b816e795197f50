package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// A claim frees no more than is taken: a lower
// counter is damaged, and must not go below 0.
func TestAReleaseOfMoreThanIsTakenIsDamage(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		two := b.taken(want("u", 2, ""))
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "taken", 1).Err())
		b.unchanged("one is taken", func() { require.Equal(t, []lua.Released{lua.ReleasedDamaged}, b.giveBack(two)) })
	})
}

func TestLock_ThatIsLostIsGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	lock, err := s.LockLeader(t.Context(), "one", 300*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), lua.LeaderKey, "another's", 0).Err())
	err = lock.RenewUntil(t.Context())
	require.ErrorIs(t, err, lua.ErrLocked)
	require.NotContains(t, err.Error(), "could not be renewed")
}

// Another user who sends the same idempotency key, by chance or by
// guess, makes a claim of its own.
func TestAKeyIsItsUsers(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeReplayed},
			b.outcomes(want("u", 1, "order-9001"), want("v", 2, "order-9001"), want("u", 1, "order-9001")))
		require.EqualValues(t, 3, b.state().Taken)
	})
}
