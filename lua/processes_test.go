package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
)

func TestProcessesAreListedUntilTheyWithdraw(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		one, two := &lua.Process{ID: t.Name() + "1", Role: "syncer", Name: "b"}, &lua.Process{ID: t.Name() + "2", Role: "api", Name: "z"}
		require.NoError(t, b.s.Announce(t.Context(), one))
		require.NoError(t, b.s.Announce(t.Context(), two))
		found := func() (names []string) {
			all, err := b.s.Processes(t.Context())
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
		require.NoError(t, b.s.Withdraw(t.Context(), two.ID))
		require.Equal(t, []string{"syncer/b"}, found())
	})
}
