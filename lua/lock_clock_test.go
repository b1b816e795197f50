package lua_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

// A lease that was taken while Redis' clock was two hours ahead, by a process that died, lasts no longer than any other.
func TestLock_OfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	clock, err := testenv.NewClock(t)
	if err != nil {
		t.Skip(err)
	}
	s, err := lua.New(clock.Redis().Client(), lua.Options{})
	require.NoError(t, err)
	clock.Set(2 * time.Hour)
	_, err = s.LockLeader(t.Context(), "dead", time.Second)
	require.NoError(t, err)
	clock.Set(0)
	require.Eventually(t, func() bool { // Redis runs it out by its clock
		lease, err := s.LockLeader(t.Context(), "next", time.Second)
		if errors.Is(err, lua.ErrLocked) {
			return false
		}
		return err == nil && lease.Release(t.Context()) == nil
	}, time.Minute, 20*time.Millisecond)
}
