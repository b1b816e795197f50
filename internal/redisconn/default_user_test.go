package redisconn_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testenv"
)

// These users were observed with Redis 7.0: at a restart it kept
// or dropped the writes of a script that wrote twice.
func TestADefaultUserThatMayNotWriteIsAdvisedOf(t *testing.T) {
	t.Parallel()
	for user, safe := range map[string]bool{
		"on nopass ~* &* +@all": true, "on >longsecret ~* &* +@all": true,
		"off": false, "on nopass resetkeys resetchannels -@all": false,
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, "appendonly yes", "appendfsync always", "aof-load-truncated no")
			boss := connect(t, "redis://boss:pw@"+server.Addr())
			require.NoError(t, server.Client().Do(t.Context(), "acl", "setuser", "boss", "on", ">pw", "~*", "&*", "+@all").Err())
			advice, err := adviceOf(t, boss)
			require.NoError(t, err)
			require.Empty(t, advice)
			words := []any{"acl", "setuser", "default", "reset"}
			for word := range strings.FieldsSeq(user) {
				words = append(words, word)
			}
			require.NoError(t, boss.Do(t.Context(), words...).Err())
			advice, err = adviceOf(t, boss)
			require.NoError(t, err)
			require.Equal(t, safe, advice == "", advice)
			err = checkOf(t, boss, redisconn.MustFsync)
			if safe {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, redisconn.ErrFsync)
			require.ErrorContains(t, err, "default user")
		})
	}
	advice, err := adviceOf(t, testenv.Redis(t).Client())
	require.NoError(t, err)
	require.Empty(t, advice, "there is no file to load")
}

func adviceOf(t *testing.T, rdb redis.UniversalClient) (string, error) {
	t.Helper()
	info, err := redisconn.Info(t.Context(), rdb)
	require.NoError(t, err)
	return redisconn.DefaultUserAdvice(t.Context(), rdb.(*redis.Client), info)
}
