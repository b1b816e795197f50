package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// failoverMax is how long after a promotion the first claim may be refused: some tens of milliseconds where the machine is quiet, and far
// below the minute that a client takes by itself where it is not.
const failoverMax = 10 * time.Second

// TestCluster_ClaimsGoOnOnceAReplicaIsPromoted kills the master of a campaign: its claims go on as soon as the cluster has
// promoted the replica, and campaigns on other masters are not disturbed.
func TestCluster_ClaimsGoOnOnceAReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	cluster := testenv.RedisReplicatedCluster(t, 3, 1500*time.Millisecond)
	rdb, err := lua.Connect(cluster.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, err := lua.New(rdb, lua.Options{Partitions: 8})
	require.NoError(t, err)
	c := models.Campaign{ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusOpen, Total: 1_000_000, TimeZone: "UTC"}
	c.Partition = lua.PartitionOf(c.ID, 8)
	_, err = scripts.Load(t.Context(), &c)
	require.NoError(t, err)
	meta, err := scripts.MetaOf(&c)
	require.NoError(t, err)
	claim := func() error {
		_, _, err := scripts.Claim(t.Context(), meta, []lua.ClaimRequest{want("ada", 1, "")})
		return err
	}
	require.NoError(t, claim())
	master := cluster.MasterOf(lua.StreamKey(c.Partition))
	master.Kill()
	went := make(chan time.Time)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for claim() != nil {
			<-tick.C
		}
		went <- time.Now()
	}()
	promoted := cluster.AwaitPromotion(master, lua.StreamKey(c.Partition))
	select {
	case at := <-went:
		t.Logf("%s after the promotion", at.Sub(promoted))
	case <-time.After(failoverMax):
		t.Fatalf("no claim went through within %s of the promotion", failoverMax)
	}
}
