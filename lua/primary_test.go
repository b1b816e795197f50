package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

func withReplica(t *testing.T, rdb redis.UniversalClient) *lua.Scripts {
	t.Helper()
	s, err := lua.New(rdb, lua.Options{Durability: lua.Durability{Replicas: 1}})
	require.NoError(t, err)
	return s
}

// A primary that lost its replica is believed to be the primary by what the other masters say. One that is cut off from most of them may
// have been replaced, and nothing is booked.
func TestAPrimaryWithoutReplicasIsVouchedForByMostMasters(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, time.Minute)
	s := withReplica(t, connect(t, cluster.URL()))
	stream := lua.StreamKey(0)
	primary := cluster.MasterOf(stream)
	require.NoError(t, s.AwaitReplicas(t.Context(), stream), "its replica has everything")
	var others []*testenv.RedisServer
	_, port, _ := strings.Cut(primary.Addr(), ":")
	for _, node := range cluster.Nodes() {
		info, err := node.Client().Info(t.Context(), "replication").Result()
		require.NoError(t, err)
		switch {
		case strings.Contains(info, "role:master") && node != primary:
			others = append(others, node)
		case strings.Contains(info, "role:slave") && strings.Contains(info, "master_port:"+port+"\r\n"):
			node.Kill()
		}
	}
	require.Len(t, others, 2)
	require.Eventually(t, func() bool {
		info, err := primary.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "connected_slaves:0\r\n")
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.AwaitReplicas(t.Context(), stream), "the other masters say that it is the primary")
	time.Sleep(lua.AloneFor) //nolint:forbidigo // for so long it is not asked again
	for _, other := range others {
		other.Pause()
	}
	require.Error(t, s.AwaitReplicas(t.Context(), stream), "no one says so")
	for _, other := range others {
		other.Resume()
	}
	require.NoError(t, s.AwaitReplicas(t.Context(), stream))
}

// The same of Sentinels.
func TestAPrimaryWithoutReplicasIsVouchedForByMostSentinels(t *testing.T) {
	t.Parallel()
	primary := testenv.Redis(t)
	sentinels := testenv.Sentinels(t, primary, 0, time.Minute)
	s := withReplica(t, connect(t, sentinels.URL()))
	require.NoError(t, s.AwaitReplicas(t.Context(), lua.StreamKey(0)), "they name it")
	began := time.Now()
	require.NoError(t, s.AwaitReplicas(t.Context(), lua.StreamKey(0)))
	require.Less(t, time.Since(began), 1900*time.Millisecond, "it was known just now; a wait for replicas takes two seconds")
	require.False(t, lua.IsPrimary(t.Context(), s, testenv.Redis(t).Client(), lua.StreamKey(0)), "they name another")
}
