package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// on claims for a new user of a shard.
func (sl *sale) on(api, shard int, quantity int64) reply {
	sl.t.Helper()
	user := onShard(int(sl.next.Add(1)), sl.shards, shard)
	return callOn(sl.t, keepingAlive, http.MethodPost, sl.s.apis[api].url+"/v1/campaigns/"+sl.id+"/claims", "",
		map[string]any{"user_id": user, "quantity": quantity})
}

// TestAShardPutBackBehindARecall: units were called back from a shard and sold elsewhere. Its Redis is restored to before that, and has
// lost nothing else. It has the units again, and must not sell them: whether it is asked at once or not at all, it is stopped and put
// right.
func TestAShardPutBackBehindARecall(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]bool{"claims go on": true, "no one claims": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const shards, total = 4, 80
			s := newSystem(t, wishes{apis: 2, partitions: shards})
			sl := s.sell(t, total, shards, 1, evenly)
			for shard := 1; shard <= shards; shard++ {
				for api := range s.apis { // each process has seen each shard
					require.Equal(t, http.StatusCreated, sl.on(api, shard, 1).status)
				}
			}
			sold := int64(8)
			sl.requireBooks(sold)
			require.NoError(t, s.rdb.Save(t.Context()).Err())
			require.NoError(t, s.rdb.ConfigSet(t.Context(), "save", "").Err())
			require.Equal(t, http.StatusCreated, sl.claim(onShard(1000, shards, 2), total-sold, "").status, "all units are called back for it")
			sl.requireBooks(total)
			snapshot := s.scripts.Shards(t.Context(), []string{models.ShardID(sl.id, 1)})[0]
			require.Zero(t, snapshot.Free())

			s.redis.Kill()
			if asks {
				for api := range s.apis {
					require.NotEqual(t, http.StatusCreated, sl.on(api, 1, 1).status, "Redis is away")
				}
			}
			s.redis.Start()
			yeses, over := 0, time.Now().Add(upTimeout)
			for n := 0; ; n++ {
				require.True(t, time.Now().Before(over), "the shard is not put right")
				if asks && sl.on(n%2, 1, 1).status == http.StatusCreated {
					yeses++
				}
				// It waits for the repair if the syncer has seen the entries that its stream lost, which are debits and credits.
				v := s.scripts.Shards(t.Context(), []string{models.ShardID(sl.id, 1)})[0]
				if errors.Is(v.Err, lua.ErrAbsent) || v.Err == nil && v.TSeq >= snapshot.TSeq && v.Free() == 0 {
					break
				}
				<-time.After(pollEvery)
			}
			require.Zero(t, yeses, "these units were sold already")
			require.Eventually(t, func() bool {
				got := runDibs(t, s.settings, "reconcile", "--campaign", sl.id, "--repair", "--give-up-claims")
				return got.code == exitOK
			}, upTimeout, 100*time.Millisecond)
			got := runDibs(t, s.settings, "reconcile")
			require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
			sl.requireBooks(total)
			require.Equal(t, "sold_out", settled(func() string { return sl.on(0, 1, 1).code() }))
		})
	}
}
