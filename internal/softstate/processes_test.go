package softstate_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/softstate"
	"dibs/lua"
)

func TestProcessesAreListedUntilTheyWithdraw(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, s *softstate.Store, _ *lua.Scripts, _ redis.UniversalClient) {
		one, two := &softstate.Process{ID: t.Name() + "1", Role: "syncer", Name: "b"}, &softstate.Process{ID: t.Name() + "2", Role: "api", Name: "z"}
		require.NoError(t, s.Announce(t.Context(), one))
		require.NoError(t, s.Announce(t.Context(), two))
		found := func() (names []string) {
			all, err := s.Processes(t.Context())
			require.NoError(t, err)
			for _, p := range all {
				if p.ID == one.ID || p.ID == two.ID {
					names = append(names, p.Role+"/"+p.Name)
					require.Less(t, p.Silent, time.Minute)
				}
			}
			return names
		}
		require.Equal(t, []string{"api/z", "syncer/b"}, found())
		require.NoError(t, s.Withdraw(t.Context(), two.ID))
		require.Equal(t, []string{"syncer/b"}, found())
		running, err := s.Running(t.Context())
		require.NoError(t, err)
		require.Contains(t, running, "`dibs syncer` called b")
	})
}
