package lua_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

// TestADefaultUserThatMayNotWriteIsAdvisedOf: the users are those with which a Redis 7.0 was seen to keep, or to leave out, what a script
// of two writes had written.
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
			advice, err := lua.DefaultUserAdvice(t.Context(), boss)
			require.NoError(t, err)
			require.Empty(t, advice)
			words := []any{"acl", "setuser", "default", "reset"}
			for word := range strings.FieldsSeq(user) {
				words = append(words, word)
			}
			require.NoError(t, boss.Do(t.Context(), words...).Err())
			advice, err = lua.DefaultUserAdvice(t.Context(), boss)
			require.NoError(t, err)
			require.Equal(t, safe, advice == "", advice)
			s, err := lua.New(boss, lua.Options{Durability: lua.Fsync})
			require.NoError(t, err)
			_, err = s.CheckDurability(t.Context())
			if safe {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, lua.ErrDurability)
			require.ErrorContains(t, err, "default user")
		})
	}
	server := testenv.Redis(t)
	advice, err := lua.DefaultUserAdvice(t.Context(), server.Client())
	require.NoError(t, err)
	require.Empty(t, advice, "there is no file to load")
}
