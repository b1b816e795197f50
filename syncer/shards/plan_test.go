package shards_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/shards"
)

func viewsOf(pairs ...int64) (views []lua.ShardView) {
	for i := 0; i < len(pairs); i += 2 {
		views = append(views, lua.ShardView{Total: pairs[i], Taken: pairs[i+1]})
	}
	return views
}

func TestGathering(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name  string
		need  models.Need
		views []lua.ShardView
		want  []int64
	}{
		{"half of the difference to the richest", models.Need{Shard: 1, Units: 1}, viewsOf(5, 5, 20, 0, 50, 0), []int64{0, 0, 25}},
		{"at least what is lacking", models.Need{Shard: 1, Units: 40}, viewsOf(5, 5, 20, 0, 50, 0), []int64{0, 0, 40}},
		{"from several, if none has enough", models.Need{Shard: 1, Units: 60}, viewsOf(5, 5, 20, 0, 50, 0), []int64{0, 10, 50}},
		{"nothing, if all together lack it", models.Need{Shard: 1, Units: 71}, viewsOf(5, 5, 20, 0, 50, 0), []int64{0, 0, 0}},
		{"what the shard owes comes on top", models.Need{Shard: 1, Units: 1}, viewsOf(5, 8, 4, 0, 3, 3), []int64{0, 4, 0}},
		{"ahead, only from one that has far more", models.Need{Shard: 1, Units: 9, Ahead: true}, viewsOf(10, 5, 19, 0), []int64{0, 0}},
		{"ahead, never all that the other has", models.Need{Shard: 1, Units: 99, Ahead: true}, viewsOf(5, 5, 40, 0), []int64{0, 20}},
		{"ahead, half of the difference", models.Need{Shard: 1, Units: 9, Ahead: true}, viewsOf(10, 5, 45, 0), []int64{0, 20}},
	} {
		require.Equal(t, one.want, shards.Gathering(one.need, one.views...), one.name)
	}
}

// Free units are taken first, the rest in proportion to the shards' totals.
func TestLowering(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(rt, "shards")
		views := make([]lua.ShardView, n)
		total := int64(0)
		free := int64(0)
		for i := range views {
			views[i].Total = rapid.Int64Range(0, 50).Draw(rt, "total")
			views[i].Taken = rapid.Int64Range(0, 60).Draw(rt, "taken")
			total += views[i].Total
			free += views[i].Free()
		}
		units := rapid.Int64Range(0, total).Draw(rt, "units")
		left := units
		for round := 0; left > 0; round++ {
			require.Less(rt, round, 20)
			parts, taken := shards.Lowering(left, views...)
			require.Equal(rt, free == 0, taken)
			for i, part := range parts {
				require.LessOrEqual(rt, part, views[i].Total)
				if !taken {
					require.LessOrEqual(rt, part, views[i].Free())
				}
				views[i].Total -= part
				left -= part
			}
			free = 0
			for i := range views {
				free += views[i].Free()
			}
			require.GreaterOrEqual(rt, left, int64(0))
		}
	})
	parts, _ := shards.Lowering(10, viewsOf(20, 0, 2, 0, 9, 0)...)
	require.Equal(t, []int64{4, 2, 4}, parts, "evenly")
	parts, taken := shards.Lowering(10, viewsOf(10, 20, 30, 30)...)
	require.Equal(t, []int64{3, 7}, parts)
	require.True(t, taken)
}
