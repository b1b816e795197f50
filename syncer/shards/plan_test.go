package shards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// Who waits for units has all shards asked for them at once, but for one that is away and one whose move is open; who looks ahead asks one.
func TestAllShardsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	p := &picture{books: make([]models.Campaign, 6), views: []lua.ShardView{
		{}, {Total: 100}, {Total: 40}, {Total: 5}, {Total: 9}, {Total: 50, Err: lua.ErrUnavailable},
	}}
	p.books[4].MoveNo = 1
	first := step{verbBegin, 2, models.MoveRecall, 50}
	require.Equal(t, []step{first, {verbBegin, 3, models.MoveRecall, 20}, {verbBegin, 4, models.MoveRecall, 5}}, p.with(first, models.Need{Shard: 1, Units: 1}))
	require.Equal(t, []step{first}, p.with(first, models.Need{Shard: 1, Units: 1, Ahead: true}))
	grant := step{verbBegin, 1, models.MoveGrant, 50}
	require.Equal(t, []step{grant}, p.with(grant, models.Need{Shard: 1, Units: 1}))
	p.books[1].MoveNo, p.books[5].MoveNo = 1, 1
	finish := step{verb: verbFinish, shard: 5}
	p.views[4].Moves = 1
	require.Equal(t, []step{finish, {verb: verbFinish, shard: 2}}, p.with(finish, models.Need{Shard: 1, Units: 1}))
}
