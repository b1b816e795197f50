package lua_test

import (
	"slices"
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

// A primary that lost its replica is believed to be the primary by what the other masters say. While they know of a replica, that one may
// take over. A primary that is cut off from most of them may have been replaced. Nothing is booked then.
func TestAPrimaryWithoutReplicasIsVouchedForByMostMasters(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, time.Minute)
	s := withReplica(t, connect(t, cluster.URL()))
	stream := lua.StreamKey(0)
	primary := cluster.MasterOf(stream)
	require.NoError(t, s.AwaitReplicas(t.Context(), stream), "its replica has everything")
	for _, node := range cluster.Nodes() { // a replica is listed once its offset was gossiped
		require.Eventually(t, func() bool {
			slots, err := node.Client().ClusterSlots(t.Context()).Result() //nolint:staticcheck // as lua asks
			return err == nil && !slices.ContainsFunc(slots, func(r redis.ClusterSlot) bool { return len(r.Nodes) != 2 })
		}, time.Minute, 10*time.Millisecond)
	}
	var others []*testenv.RedisServer
	replica := ""
	_, port, _ := strings.Cut(primary.Addr(), ":")
	for _, node := range cluster.Nodes() {
		info, err := node.Client().Info(t.Context(), "replication").Result()
		require.NoError(t, err)
		switch {
		case strings.Contains(info, "role:master") && node != primary:
			others = append(others, node)
		case strings.Contains(info, "role:slave") && strings.Contains(info, "master_port:"+port+"\r\n"):
			id, err := node.Client().ClusterMyID(t.Context()).Result()
			require.NoError(t, err)
			replica = id
			node.Kill()
		}
	}
	require.Len(t, others, 2)
	require.Eventually(t, func() bool {
		info, err := primary.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "connected_slaves:0\r\n")
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, s.AwaitReplicas(t.Context(), stream), "the other masters know of a replica")
	for _, node := range append(others, primary) {
		require.NoError(t, node.Client().ClusterForget(t.Context(), replica).Err())
	}
	require.NoError(t, s.AwaitReplicas(t.Context(), stream), "the other masters say that it is the primary, without replicas")
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
	started := time.Now()
	require.NoError(t, s.AwaitReplicas(t.Context(), lua.StreamKey(0)))
	require.Less(t, time.Since(started), 1900*time.Millisecond, "it was known just now; a wait for replicas takes two seconds")
	require.False(t, lua.IsAlone(t.Context(), s, testenv.Redis(t).Client(), lua.StreamKey(0)), "they name another")
}

// A primary that is cut off from its replica has none connected. The Sentinels see the replica, and may promote it.
func TestAPrimaryWhoseReplicaIsUpIsNotAlone(t *testing.T) {
	t.Parallel()
	primary := testenv.Redis(t, "repl-diskless-sync-delay 0")
	replica := testenv.Redis(t)
	testenv.Replicate(t, replica, primary)
	sentinels := testenv.Sentinels(t, primary, 1, time.Minute)
	s := withReplica(t, connect(t, sentinels.URL()))
	require.NoError(t, s.AwaitReplicas(t.Context(), lua.StreamKey(0)))
	require.NoError(t, primary.Client().Do(t.Context(), "acl", "setuser", "default", "-psync", "-sync").Err())
	require.NoError(t, primary.Client().ClientKillByFilter(t.Context(), "type", "replica").Err())
	require.Eventually(t, func() bool {
		info, err := primary.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "connected_slaves:0\r\n")
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, s.AwaitReplicas(t.Context(), lua.StreamKey(0)))
}
