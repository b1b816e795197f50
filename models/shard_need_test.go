package models_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func TestOneOfManyAsksForAShardThatRunsDry(t *testing.T) {
	t.Parallel()
	const pace = 100
	asked := 0
	// calls of all processes, in sequence
	for remaining := int64(1000); remaining > 0; remaining -= 7 {
		need, lacks := models.NeedAhead(remaining-7, 7, pace)
		require.Equal(t, models.Need{Units: 2*pace + 1, Ahead: true}, need)
		if lacks {
			asked++
		}
	}
	require.Equal(t, 3, asked, "once a line, in case that one is slow")
	_, lacks := models.NeedAhead(0, 1000, pace)
	require.True(t, lacks, "one large call crosses all lines")
	_, lacks = models.NeedAhead(150, 0, pace)
	require.False(t, lacks, "no one took anything")
}

func TestUsersAreOnAllShards(t *testing.T) {
	t.Parallel()
	seen := make(map[int]bool)
	for i := range 100 * models.ShardsMax {
		seen[models.ShardOfUser(fmt.Sprint("u-", i), models.ShardsMax)] = true
	}
	require.Len(t, seen, models.ShardsMax)
	require.False(t, seen[0])
}

// The parts must add up to the whole and differ by one at most. Packets go to
// the shard of their number.
func TestWhatIsDealtOutIsAllOfIt(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{2, 3, 7, models.ShardsMax} {
		for amount := range int64(200) {
			all := int64(0)
			packets := make(map[int]int64)
			for position := int64(1); position <= amount; position++ {
				packets[models.ShardOfPacket(position, shards)]++
			}
			for shard := 1; shard <= shards; shard++ {
				part := models.DealtTo(shard, shards, amount)
				require.InDelta(t, amount/int64(shards), part, 1)
				require.Equal(t, packets[shard], part)
				all += part
			}
			require.Equal(t, amount, all)
		}
	}
	require.Zero(t, models.ShardOfPacket(5, 1))
}
