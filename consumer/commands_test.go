package consumer_test

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// The reader needs these commands and no others, on Redis 7.0, on Valkey 8 and on the embedded Redis, which lacks XGROUP SETID. The
// access list of docs/security.md has them.
func TestApplier_Commands(t *testing.T) {
	t.Parallel()
	usual := []string{"eval", "evalsha", "exec", "get", "multi", "xgroup create", "xgroup createconsumer", "xgroup setid", "xrange", "xread", "xreadgroup"}
	for name, server := range map[string]struct {
		start func(t *testing.T) redis.UniversalClient
		uses  []string
	}{
		"redis":    {func(t *testing.T) redis.UniversalClient { return testenv.Redis(t).Client() }, usual},
		"valkey":   {func(t *testing.T) redis.UniversalClient { return testenv.Valkey(t).Client() }, usual},
		"embedded": {func(t *testing.T) redis.UniversalClient { return embedded(t) }, append(slices.Clone(usual), "xgroup destroy")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := server.start(t)
			commands := &testenv.Commands{}
			rdb.AddHook(commands)
			log := &memoryLog{}
			a := startApplier(t, rdb, log, asIs)
			for n := range 20 {
				a.claim(t, 0, n)
			}
			a.eventually(t, 20)
			require.NoError(t, rdb.XDel(t.Context(), lua.StreamKey(0), log.offset(0).EntryID).Err()) // it is read again
			a.claim(t, 0, 20)
			require.Eventually(t, func() bool { return log.offset(0).Generation == 1 && slices.Contains(log.ids(), claimID(20)) }, patience, patience/10_000)
			a.stop()
			used := slices.DeleteFunc(commands.Sent(), func(name string) bool { return name == "xadd" || name == "xdel" })
			slices.Sort(server.uses)
			require.Equal(t, server.uses, used)
			if name != "embedded" {
				groups, err := rdb.XInfoGroups(t.Context(), lua.StreamKey(0)).Result()
				require.NoError(t, err)
				require.Equal(t, models.GroupSyncer, groups[0].Name)
				require.Zero(t, groups[0].Pending)
			}
		})
	}
}
