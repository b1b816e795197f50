package redisconn_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// failoverMax is the longest time from a promotion to the next claim. It is
// some tens of milliseconds on an idle machine. On a busy one it is still far
// below the client's default of a minute.
const failoverMax = 10 * time.Second

// A stalled master keeps its connections. Its callers must not
// wait until their deadline.
func TestCluster_ClaimsGoOnAfterAMasterHangs(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, 1500*time.Millisecond)
	rdb, err := redisconn.Connect(cluster.URL() + "?read_timeout=1m")
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	claim, partition := claiming(t, rdb, 8, time.Minute)
	require.NoError(t, claim())
	master := cluster.MasterOf(lua.StreamKey(partition))
	master.Pause()
	t.Cleanup(master.Resume)
	requireGoesOn(t, claim, func() time.Time { return cluster.AwaitPromotion(master, lua.StreamKey(partition)) })
}

func claiming(t *testing.T, rdb redis.UniversalClient, partitions int, patience time.Duration) (claim func() error, partition int) {
	t.Helper()
	scripts, err := lua.New(rdb, lua.Options{Partitions: partitions})
	require.NoError(t, err)
	c := models.Campaign{ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusOpen, Total: 1_000_000, TimeZone: "UTC"}
	c.Partition = lua.PartitionOf(c.ID, partitions)
	_, err = scripts.Load(t.Context(), &c)
	require.NoError(t, err)
	meta, err := scripts.MetaOf(&c)
	require.NoError(t, err)
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, _, err := scripts.Claim(ctx, meta, []lua.ClaimRequest{{ID: uuid.Must(uuid.NewV7()), UserID: "ada", Quantity: 1}})
		return err
	}, c.Partition
}

// requireGoesOn claims until a claim succeeds. At the same time
// back waits for a server and returns when it had one.
func requireGoesOn(t *testing.T, claim func() error, back func() time.Time) {
	t.Helper()
	went := make(chan time.Time)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for claim() != nil {
			<-tick.C
		}
		went <- time.Now()
	}()
	since := back()
	select {
	case at := <-went:
		t.Logf("%s after the new server was there", at.Sub(since))
	case <-time.After(failoverMax):
		t.Fatalf("no claim went through within %s of the new server", failoverMax)
	}
}

// The primary is killed and its address then leads to the replica.
func TestMovedAddress_ClaimsGoOn(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.Redis(t), testenv.Redis(t, "repl-diskless-sync-delay 0")
	testenv.Replicate(t, replica, primary)
	address := machine.Proxy(t, primary.Addr())
	rdb := connect(t, "redis://"+address.Listen)
	claim, _ := claiming(t, rdb, 1, time.Second)
	require.NoError(t, claim())
	require.NoError(t, rdb.Do(t.Context(), "wait", 1, 1000).Err())
	primary.Kill()
	requireGoesOn(t, claim, func() time.Time {
		require.NoError(t, replica.Client().Do(t.Context(), "replicaof", "no", "one").Err())
		address.Stop()
		address.Upstream = replica.Addr()
		require.NoError(t, address.Start())
		return time.Now()
	})
}
