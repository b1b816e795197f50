package claiming_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/attempts"
	"dibs/api/workers"
	"dibs/internal/softstate"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// tries replaces Redis where a test has its own clock.
type tries struct {
	mu     sync.Mutex
	byUser map[string]int64
	calls  int
	away   bool
}

func (s *tries) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *tries) AddAttempts(_ context.Context, byUser map[string]int64) (map[string]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.away {
		return nil, errors.New("away")
	}
	all := make(map[string]int64)
	for id, n := range byUser {
		s.byUser[id] += n
		all[id] = s.byUser[id]
	}
	return all, nil
}

// limiter reports whether a user may claim now, in a process that
// may share its counts with others.
func limiter(perSecond float64, shared attempts.Counter) (users func(userID string) bool, stop func(ctx context.Context) error) {
	var group workers.Group
	u := attempts.New(attempts.Config{PerSecond: perSecond, Counter: shared, Workers: &group, Clock: time.Now})
	return func(userID string) bool { return u.Refuse(userID, time.Now()) == nil }, group.Stop
}

// A user whose first try finds an exchange full is in a later one.
func TestUserRate_IsOfAllProcessesAfterACrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &tries{byUser: make(map[string]int64)}
		user, stop := limiter(100, shared)
		defer func() { require.NoError(t, stop(t.Context())) }()
		for i := range attempts.PerExchange {
			user(fmt.Sprint("other-", i))
		}
		require.True(t, user("u"))
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
		require.True(t, user("u"))
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
		shared.mu.Lock()
		defer shared.mu.Unlock()
		require.EqualValues(t, 2, shared.byUser["u"])
	})
}

// A user who switches processes must get the rate once in total.
// Without the exchange it is once per process.
func TestUserRate_IsOfAllProcesses(t *testing.T) {
	t.Parallel()
	const processes, perSecond, seconds = 4, 2, 30
	for name, c := range map[string]struct {
		shared, away bool
		least, most  int
	}{
		"shared":                {shared: true, least: perSecond * (seconds - 1), most: perSecond*seconds + 2*processes*perSecond},
		"control, not shared":   {least: processes * perSecond * (seconds - 1), most: processes * perSecond * (seconds + 1)},
		"shared, redis is away": {shared: true, away: true, least: processes * perSecond * (seconds - 1), most: processes * perSecond * (seconds + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shared := &tries{byUser: make(map[string]int64), away: c.away}
				var users []func(userID string) bool
				for range processes {
					var exchange attempts.Counter
					if c.shared {
						exchange = shared
					}
					user, stop := limiter(perSecond, exchange)
					defer func() { require.NoError(t, stop(t.Context())) }()
					users = append(users, user)
				}
				let := 0
				for i := range seconds * 100 {
					if users[i%processes]("u") {
						let++
					}
					time.Sleep(10 * time.Millisecond) //nolint:forbidigo // of the bubble's clock
				}
				require.GreaterOrEqual(t, let, c.least)
				require.LessOrEqual(t, let, c.most)
				require.LessOrEqual(t, shared.called(), processes*seconds*10, "ten times a second at most")
				for p := range processes {
					require.True(t, users[p](fmt.Sprint("other-", p)), "others are not held up")
				}
			})
		})
	}
}

// Redis sums up the processes' counts and drops idle users. Processes
// must notice that a count started over.
func TestUserRate_IsAddedUpInRedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	scripts, err := lua.New(server.Client(), lua.Options{})
	require.NoError(t, err)
	shared := softstate.New(server.Client(), scripts)
	for i, want := range []int64{3, 6} {
		all, err := shared.AddAttempts(t.Context(), map[string]int64{"u": 3, fmt.Sprint("only ", i): 1})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"u": want, fmt.Sprint("only ", i): 1}, all)
	}
	left, err := server.Client().PTTL(t.Context(), "dibs:tries:u").Result()
	require.NoError(t, err)
	require.InDelta(t, softstate.AttemptTTL, left, float64(9*time.Second))
	require.Positive(t, left)
	server.Kill()
	_, err = shared.AddAttempts(t.Context(), map[string]int64{"u": 1})
	require.Error(t, err)
}
