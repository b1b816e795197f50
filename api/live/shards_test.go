package live_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"dibs/api/live"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

// newSpread makes a rig with a campaign of 100 units over shards. MySQL's
// counters of the campaign itself lag.
func newSpread(t *testing.T, shards int) *rig {
	t.Helper()
	r := newRig(t, models.Campaign{ID: "c", Total: 100, Shards: shards, LowStockAt: 70})
	r.fake.Campaigns["c"].InRedis = false
	for i := range shards {
		r.fake.Put(models.Campaign{ID: models.ShardID("c", i+1), Total: models.DealtTo(i+1, shards, 100), Shards: shards, Partition: i, Version: 7}).InRedis = true
	}
	return r
}

func (r *rig) change(change func(fake *apitest.Fake)) {
	r.fake.Mu.Lock()
	defer r.fake.Mu.Unlock()
	change(r.fake)
}

func TestACampaignOfSeveralShardsIsToldLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSpread(t, 3)
		one, all := r.open("c"), r.open("")
		require.EqualValues(t, 100, one.events(t)[0].Remaining)

		r.claim("c#1", 20)
		r.claim("c#2", 15)
		r.change(func(fake *apitest.Fake) {
			fake.Campaigns["c#1"].Lag, fake.Campaigns["c#2"].Lag = 4, 15
			fake.Campaigns["c#3"].Moved.Out = 5 // units being moved
			fake.Campaigns["c#3"].Total -= 5
		})
		pass(live.Every)
		e := one.events(t)[0]
		require.Equal(t, []int64{100, 65, 35, 16, 19, 0}, []int64{e.Total, e.Remaining, e.Claimed, e.Synced, e.Backlog, e.Drift})
		require.True(t, e.Low)
		require.True(t, e.MovesOpen)
		require.Equal(t, []live.Shard{
			{ShardFigures: models.ShardFigures{Shard: 1, Partition: 0, Granted: 34, Claimed: 20, Free: 14, Seq: 20, SyncedSeq: 0}, Status: models.StatusOpen},
			{ShardFigures: models.ShardFigures{Shard: 2, Partition: 1, Granted: 33, Claimed: 15, Free: 18, Seq: 15}, Status: models.StatusOpen},
			{ShardFigures: models.ShardFigures{Shard: 3, Partition: 2, Granted: 28, Free: 28}, Status: models.StatusOpen},
		}, e.Shards)
		ofAll := all.events(t)
		require.Equal(t, e.Shards, ofAll[len(ofAll)-1].Shards, "a watcher of all gets the same")

		pass(3 * live.Every)
		require.EqualValues(t, 3000, one.events(t)[2].BacklogAgeMs, "the oldest of any shard")
	})
}

func TestOneShardThatIsAwayHidesNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSpread(t, 3)
		r.fake.Put(models.Campaign{ID: "far", Total: 5}).InRedis = true
		r.claim("c#1", 6)
		r.claim("c#2", 6)
		r.claim("c#3", 6)
		r.change(func(fake *apitest.Fake) {
			away := fmt.Errorf("%w: no route", lua.ErrUnavailable)
			fake.RedisAway = map[string]error{"c#2": away, "far": away}
			fake.Campaigns["c#2"].Lag = 4
			fake.Campaigns["c#3"].InRedis, fake.Campaigns["c#3"].Evicted = false, true
		})
		e := r.open("c").events(t)[0]
		require.EqualValues(t, 6+2+6, e.Claimed, "of the one that is away what MySQL says")
		statuses := []models.Status{e.Shards[0].Status, e.Shards[1].Status, e.Shards[2].Status}
		require.Equal(t, []models.Status{"open", "away", "not_loaded"}, statuses)
		require.Equal(t, models.StatusOpen, e.Status)

		far, all := r.open("far"), r.open("")
		synctest.Wait()
		require.Equal(t, "retry: 2000\n", <-far.lines)
		<-far.lines
		pass(live.Every)
		synctest.Wait()
		require.Equal(t, "event: problem\n", <-far.lines)
		events := all.events(t)
		require.Equal(t, "c", events[len(events)-2].CampaignID, "of the campaign whose Redis answers")
		require.Empty(t, events[len(events)-1].CampaignID, "and then that another's does not")
	})
}

func TestACampaignOfSeveralShardsIsToldByRedisAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSpread(t, 3)
		r.claim("c#1", 20)
		r.claim("c#2", 15)
		r.change(func(fake *apitest.Fake) {
			fake.Fail = errors.New("mysql is away")
			delete(fake.Campaigns, "c") // the campaign itself isn't in Redis
		})
		e := r.open("c").events(t)[0]
		require.Equal(t, []int64{100, 65, 35, 0}, []int64{e.Total, e.Remaining, e.Claimed, e.Backlog})
		require.LessOrEqual(t, e.BooksAsOf.Unix(), int64(0), "what MySQL has is not known")
		require.Len(t, e.Shards, 3)
		require.Equal(t, models.StatusOpen, e.Status)
		stock, err := r.StockInRedis(t.Context(), "c")
		require.NoError(t, err)
		require.Equal(t, []int64{100, 65, 35}, []int64{stock.Total, stock.Remaining, stock.Claimed})
		_, err = r.StockInRedis(t.Context(), "nowhere")
		require.ErrorIs(t, err, lua.ErrAbsent)
	})
}
