package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// Each number of a position reveals a rollback by itself.
func TestClaim_ComparesWhatTheCallerSaw(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, one := range []struct {
			more lua.Position
			want models.Outcome
		}{
			{lua.Position{}, models.OutcomeClaimed},
			{lua.Position{Epoch: 1}, models.OutcomeRolledBack},
			{lua.Position{Seq: 1}, models.OutcomeRolledBack},
			{lua.Position{Units: 1}, models.OutcomeRolledBack},
		} {
			b := newBundle(t, rdb, nil)
			b.claim(want("u", 3, "k"))
			state := b.state()
			at := state.Position()
			seen := lua.Position{Epoch: at.Epoch + one.more.Epoch, Seq: at.Seq + one.more.Seq, Units: at.Units + one.more.Units}
			replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, seen, wants("v", 1))
			require.NoError(t, err)
			require.Equal(t, one.want, replies[0].Outcome, "%+v", one.more)
		}
	})
}
