package shards_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/resolve"
	"dibs/syncer/shards"
)

// sale is a campaign of several shards in Redis, and a mover. Unless
// isBehind, MySQL applies the stream whenever a mover waits for that.
type sale struct {
	*syncertest.Stack
	id       string
	shards   int
	mover    *shards.Mover
	isBehind bool
	applying sync.Mutex
	users    int
}

func newSale(t *testing.T, total int64, shardCount int) *sale {
	t.Helper()
	s := &sale{Stack: syncertest.NewStack(t), shards: shardCount}
	s.id = s.Create(total, func(c *models.Campaign) { c.Shards = shardCount })
	s.mover = s.newMover(appliedFirst{s})
	for shard := 1; shard <= shardCount; shard++ {
		require.NoError(t, s.Load(s.shard(shard)))
	}
	return s
}

func (s *sale) newMover(loader shards.Loader) *shards.Mover {
	m := shards.New(s.DB, s.Scripts, loader, nil)
	m.Observe(s.apply)
	return m
}

func (s *sale) Sync() {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.Stack.Sync()
}

func (s *sale) apply(step string) {
	if step == "waiting" && !s.isBehind {
		s.Sync()
	}
}

type appliedFirst struct{ s *sale }

func (l appliedFirst) Load(ctx context.Context, id string) (lua.Meta, error) {
	l.s.apply("waiting")
	return l.s.Loader().Load(ctx, id) //nolint:wrapcheck // stands in for it
}

func (l appliedFirst) Reload(ctx context.Context, id string) error {
	l.s.apply("waiting")
	return l.s.Loader().Reload(ctx, id) //nolint:wrapcheck // stands in for it
}

// Load loads a shard once MySQL has applied the stream, and applies the load.
func (s *sale) Load(id string) error {
	_, err := appliedFirst{s}.Load(s.T.Context(), id)
	s.apply("waiting")
	return err
}

func (s *sale) shard(n int) string { return models.ShardID(s.id, n) }

func (s *sale) views() []lua.ShardView {
	c := s.Campaign(s.id)
	return s.Scripts.Shards(s.T.Context(), c.ShardIDs())
}

func (s *sale) totals() (all []int64) {
	for _, v := range s.views() {
		require.NoError(s.T, v.Err)
		all = append(all, v.Total)
	}
	return all
}

func (s *sale) take(shard, n int) (got int) {
	s.T.Helper()
	s.users++
	for _, r := range s.Claim(s.shard(shard), syncertest.Asks(fmt.Sprint("u", s.users, "-"), n)...) {
		if r.Outcome == models.OutcomeClaimed {
			got++
		}
	}
	return got
}

func (s *sale) refill(shard int, units int64) models.Refill {
	s.T.Helper()
	refill, err := s.mover.Refill(s.T.Context(), s.id, models.Need{Shard: shard, Shards: s.shards, Units: units})
	require.NoError(s.T, err)
	return refill
}

func (s *sale) open() (n int) {
	require.NoError(s.T, s.DB.Raw("SELECT COUNT(*) FROM stock_moves WHERE credited_at IS NULL").Scan(&n).Error)
	return n
}

func (s *sale) requireSettled(total int64) {
	s.T.Helper()
	s.Sync()
	require.Zero(s.T, s.open())
	for i, n := range s.totals() {
		require.Equal(s.T, n, s.Campaign(s.shard(i+1)).Total, "shard %d", i+1)
		total -= n
	}
	require.Zero(s.T, total, "units that no shard has")
	require.Empty(s.T, s.Compare(s.id).Differences)
}

func (s *sale) check() {
	s.T.Helper()
	_, err := s.mover.Check(s.T.Context())
	require.NoError(s.T, err)
}

func TestRefill_UnitsGoWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 4)
	require.Equal(t, 10, s.take(1, 12))
	require.Zero(t, s.refill(1, 1).SoldOutFrom)
	require.Equal(t, []int64{15, 5, 10, 10}, s.totals())
	require.Zero(t, s.refill(1, 25).SoldOutFrom, "from all others")
	require.Equal(t, 25, s.take(1, 100))
	require.EqualValues(t, 6, s.refill(2, 6).SoldOutFrom, "five are left")
	require.Equal(t, 5, s.take(2, 6))
	require.EqualValues(t, 1, s.refill(1, 1).SoldOutFrom)
	s.requireSettled(40)
}

func TestRefill_UnitsOnTheirWayAreNotSoldOut(t *testing.T) {
	t.Parallel()
	s := newSale(t, 4, 2)
	require.Equal(t, 2, s.take(1, 2))
	s.isBehind = true
	s.Sync()
	units, err := s.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: s.shard(2), Epoch: 1, To: 1, Units: 2})
	require.NoError(t, err)
	require.EqualValues(t, 2, units)
	_, err = s.mover.Refill(t.Context(), s.id, models.Need{Shard: 1, Shards: s.shards, Units: 1})
	require.Error(t, err, "the debit is on its way to MySQL")
	s.isBehind = false
	require.Zero(t, s.refill(1, 1).SoldOutFrom)
	require.Equal(t, 2, s.take(1, 3))
	require.EqualValues(t, 1, s.refill(1, 1).SoldOutFrom)
	s.requireSettled(4)
}

// Without a consumer, a shard has at most one
// move on its way: the others keep the rest.
func TestRefill_WaitsForItsLastMove(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 2)
	require.Equal(t, 20, s.take(1, 20))
	s.isBehind = true
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := s.mover.Refill(ctx, s.id, models.Need{Shard: 1, Shards: s.shards, Units: 1})
		cancel()
		require.Error(t, err)
	}
	require.Equal(t, []int64{20, 10}, s.totals())
	s.isBehind = false
	require.Zero(t, s.refill(1, 1).SoldOutFrom)
	require.Equal(t, []int64{30, 10}, s.totals())
	s.requireSettled(40)
}

func TestRefill_AReleaseEndsAProof(t *testing.T) {
	t.Parallel()
	s := newSale(t, 2, 2)
	claim := s.Take(s.shard(1), syncertest.Ask("ada", ""))[0]
	require.Equal(t, 1, s.take(2, 1))
	require.EqualValues(t, 1, s.refill(2, 1).SoldOutFrom)
	s.Sync()
	_, err := resolve.NewResolver(s.DB, resolve.NewRelay(s.DB, s.Scripts, nil), syncertest.Quiet()).Release(t.Context(), claim, "")
	require.NoError(t, err)
	require.Zero(t, s.refill(2, 1).SoldOutFrom)
	require.Equal(t, 1, s.take(2, 1))
}

type noLoader struct{}

func (noLoader) Reload(context.Context, string) error { return lua.ErrUnavailable }

func (noLoader) Load(context.Context, string) (lua.Meta, error) {
	return lua.Meta{}, errors.New("no")
}

func TestRefill_LoadsAShardThatMayHaveUnits(t *testing.T) {
	t.Parallel()
	s := newSale(t, 4, 2)
	require.Equal(t, 2, s.take(1, 2))
	s.Sync()
	require.Equal(t, 2, s.Evict(0))
	require.NoError(t, s.Load(s.shard(1)))
	_, err := s.newMover(noLoader{}).Refill(t.Context(), s.id, models.Need{Shard: 1, Shards: s.shards, Units: 1})
	require.Error(t, err, "it says nothing of a shard that it can not see")
	require.Zero(t, s.refill(1, 1).SoldOutFrom)
	require.Equal(t, 1, s.take(1, 2), "the other one was not in Redis")
	s.requireSettled(4)
}

// A mover that dies leaves a row without a credit. The leader completes
// it, even if a shard was loaded since.
func TestCheck_CompletesWhatAMoverLeft(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(s *sale){
		"nothing happened":     func(*sale) {},
		"the taker was loaded": func(s *sale) { s.Reload(s.shard(1)) },
		"the giver was loaded": func(s *sale) { s.Reload(s.shard(2)) },
		"both were evicted":    func(s *sale) { require.Equal(s.T, 2, s.Evict(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSale(t, 20, 2)
			units, err := s.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: s.shard(2), Epoch: 1, To: 1, Units: 4})
			require.NoError(t, err)
			require.EqualValues(t, 4, units)
			s.Sync()
			require.Equal(t, 1, s.open())
			meanwhile(s)
			s.check()
			s.Sync()
			s.check()
			require.NoError(t, s.Load(s.shard(2)))
			require.Equal(t, []int64{14, 6}, s.totals())
			s.requireSettled(20)
		})
	}
}

func TestCheck_ALostListOfMovesCreditsNothingTwice(t *testing.T) {
	t.Parallel()
	s := newSale(t, 20, 2)
	s.refill(1, 12)
	s.Sync()
	require.NoError(t, s.Redis.Del(t.Context(), s.Keys(s.shard(1)).Moves).Err())
	_, err := s.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: s.shard(2), Epoch: 1, To: 1, Units: 2})
	require.NoError(t, err)
	s.Sync()
	s.check()
	require.Equal(t, []int64{14, 6}, s.totals())
	s.requireSettled(20)
}

func TestRefill_OneOfTwoThatNeedEachOthersUnitsGetsThem(t *testing.T) {
	t.Parallel()
	s := newSale(t, 2, 2)
	met := make(chan struct{})
	meet := func(step string) { // makes both debit what they saw, at once
		if step != "debiting" {
			return
		}
		select {
		case met <- struct{}{}:
		case <-met:
		case <-time.After(models.PaceSpan / 3): // the other one waits
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var consumer, refills sync.WaitGroup
	consumer.Go(func() {
		for ctx.Err() == nil {
			func() { // a load applies, too
				s.applying.Lock()
				defer s.applying.Unlock()
				syncertest.Apply(t, s.Redis, s.Writer, s.Scripts.Partitions())
			}()
		}
	})
	results := make([]models.Refill, 2)
	failed := make([]error, 2)
	for i := range results {
		m := shards.New(s.DB, s.Scripts, appliedFirst{s}, nil)
		m.Observe(meet)
		refills.Go(func() {
			results[i], failed[i] = m.Refill(ctx, s.id, models.Need{Shard: i + 1, Shards: s.shards, Units: 2})
		})
	}
	refills.Wait()
	stop()
	consumer.Wait()
	require.NoError(t, errors.Join(failed...))
	require.Equal(t, []models.Refill{{}, {}}, results)
	s.requireSettled(2)
}

func TestRefill_ARaiseThatIsOnItsWayIsNotSoldOut(t *testing.T) {
	t.Parallel()
	s := newSale(t, 2, 2)
	require.Equal(t, 2, s.take(1, 1)+s.take(2, 1))
	s.Sync()
	require.EqualValues(t, 1, s.refill(1, 1).SoldOutFrom)
	for _, raise := range []string{
		"UPDATE lots SET total = 4 WHERE id = ?",
		"INSERT INTO stock_flushes (id, campaign_id, shard, units, claims, first_seq, last_seq, took_ms, flushed_at, waiting)" +
			// another transaction locks a shard
			" VALUES ('f', ?, 1, 0, 0, 0, 0, 0, UTC_TIMESTAMP(3), 1)",
		"INSERT INTO stock_moves (id, campaign_id, from_shard, to_shard, units, debited_at) VALUES ('r', ?, 0, 2, 2, UTC_TIMESTAMP(3))",
	} {
		s.Exec(raise, s.id)
		_, err := s.mover.Refill(t.Context(), s.id, models.Need{Shard: 1, Shards: s.shards, Units: 1})
		require.ErrorIs(t, err, shards.ErrBlocked)
	}
	s.check()
	require.Zero(t, s.refill(1, 1).SoldOutFrom)
	s.requireSettled(4)
}

func TestSettle_AShardThatIsLostHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 2)
	s.Exec("UPDATE lots SET total = 30 WHERE id = ?", s.id)
	_, errs := s.Scripts.Fence(t.Context(), "loader", lua.FenceAny, []string{s.shard(2)})
	require.NoError(t, errs[0])
	require.NoError(t, s.newMover(noLoader{}).Settle(t.Context(), s.id))
	require.EqualValues(t, 10, s.views()[0].Total)
}

// Open moves of a campaign that is over must raise no alert.
func TestCheck_LeavesClosedCampaignsAlone(t *testing.T) {
	t.Parallel()
	s := newSale(t, 20, 2)
	_, err := s.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: s.shard(2), Epoch: 1, To: 1, Units: 4})
	require.NoError(t, err)
	s.Sync()
	s.Exec("UPDATE definitions SET status = 'closed' WHERE campaign_id = ?", s.id)
	s.check()
	require.Equal(t, []int64{10, 6}, s.totals())
}

func (s *sale) setTotal(total int64) {
	s.T.Helper()
	repo := syncertest.NewCampaigns(s.T, s.DB, s.Scripts)
	repo.SettleBy(s.mover)
	_, err := repo.Change(s.T.Context(), s.id, models.Change{Total: &total})
	require.NoError(s.T, err)
	s.Sync()
}

func TestSettle_TheTotalIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 4)
	s.setTotal(50)
	require.Equal(t, []int64{13, 13, 12, 12}, s.totals())
	s.requireSettled(50)
	require.Equal(t, 10, s.take(1, 10))
	s.setTotal(11)
	s.requireSettled(11)
	require.GreaterOrEqual(t, s.totals()[0], int64(10), "what is free goes first")
	s.setTotal(5)
	s.requireSettled(5)
	require.EqualValues(t, 1, s.refill(1, 1).SoldOutFrom)
	s.setTotal(9)
	require.Zero(t, s.take(1, 1), "users have more than that")
	s.setTotal(12)
	require.Zero(t, s.refill(1, 2).SoldOutFrom)
	require.Equal(t, 2, s.take(1, 3))
	s.requireSettled(12)
}

func TestCheck_SettlesTheTotal(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 4)
	s.Exec("UPDATE lots SET total = 20 WHERE id = ?", s.id)
	for range 3 {
		s.check()
		s.Sync()
	}
	s.requireSettled(20)
	_, err := s.Scripts.LockSettling(t.Context(), s.id, 300*time.Millisecond)
	require.NoError(t, err)
	s.Exec("UPDATE lots SET total = 60 WHERE id = ?", s.id)
	require.NoError(t, s.mover.Settle(t.Context(), s.id), "a change waits for another process that settles")
	s.requireSettled(60)
}

func TestCheck_LinesAreToldOnceACrossing(t *testing.T) {
	t.Parallel()
	s := newSale(t, 40, 2)
	s.Exec("UPDATE definitions SET low_stock_at = 5 WHERE campaign_id = ?", s.id)
	told := func() (kinds []string) {
		s.Sync()
		s.check()
		require.NoError(t, s.DB.Raw("SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(payload, '\"type\":\"', -1), '\"', 1) FROM outbox WHERE kind = ? ORDER BY id",
			stored.OutboxEvent).Scan(&kinds).Error)
		s.Exec("DELETE FROM outbox")
		return kinds
	}
	require.Empty(t, told())
	require.Equal(t, 20, s.take(1, 20))
	require.Equal(t, 16, s.take(2, 16))
	require.Equal(t, []string{"campaign.low_stock"}, told())
	require.Empty(t, told())
	require.Equal(t, 4, s.take(2, 4))
	require.Equal(t, []string{"campaign.sold_out"}, told())
	s.setTotal(80)
	require.Empty(t, told())
	require.Equal(t, 20, s.take(1, 20))
	require.Equal(t, 20, s.take(2, 20))
	require.Equal(t, []string{"campaign.low_stock", "campaign.sold_out"}, told())
}

// MySQL is restored to before the campaign, whose total was changed later.
func TestRestore_ShardsGetWhatTheyHad(t *testing.T) {
	t.Parallel()
	for _, changed := range []int64{10, 50} {
		s := newSale(t, 20, 2)
		_, err := syncertest.NewCampaigns(t, s.DB, s.Scripts).Change(t.Context(), s.id, models.Change{Total: &changed})
		require.NoError(t, err)
		s.check()
		s.requireSettled(changed)
		require.NoError(t, syncertest.Dump{}.Restore(s.DB))
		s.Sync()
		s.check()
		s.requireSettled(changed)
	}
}

// Redis was rolled back and gives away units of claims that MySQL has,
// before anyone finds the loss.
func TestMove_UnitsSoldBeforeALossStay(t *testing.T) {
	t.Parallel()
	s := newSale(t, 10, 2)
	before := syncertest.DumpRedis(t, s.Redis)
	require.Equal(t, 5, s.take(1, 5))
	s.Sync()
	before.Restore(t, s.Redis)
	move, err := uuid.NewV7()
	require.NoError(t, err)
	debit := lua.Debit{Move: move.String(), Shard: s.shard(1), Epoch: s.views()[0].Epoch, To: 2, Units: 3}
	units, err := s.Scripts.Debit(t.Context(), &debit)
	require.NoError(t, err)
	require.EqualValues(t, 3, units)
	s.Sync()
	require.NoError(t, s.mover.Finish(t.Context(), s.id))
	s.Sync()
	require.NoError(t, s.Load(s.shard(1)))
	require.NoError(t, s.Load(s.shard(2)))
	require.Equal(t, 5, s.take(2, 10))
	require.Zero(t, s.take(1, 1))
	s.Sync()
	require.EqualValues(t, 10, s.Campaign(s.id).Claimed)
}
