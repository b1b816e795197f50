package resolve_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/resolve"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

func closer(h *syncertest.Stack, batch int) *resolve.Finalizer {
	h.T.Helper()
	return resolve.FinalizerWithoutDelay(restingCloser(h, batch, clockwork.NewRealClock()))
}

func restingCloser(h *syncertest.Stack, batch int, clock clockwork.Clock) *resolve.Finalizer {
	h.T.Helper()
	c := resolve.NewFinalizer(relay(h), h.Loader(), clock, nil)
	if batch > 0 {
		resolve.FinalizerWithBatch(c, batch)
	}
	return c
}

// endAll runs rounds that must not fail, until one ends nothing. Each
// end has to be applied before the next one.
func endAll(h *syncertest.Stack, c *resolve.Finalizer) (all int) {
	h.T.Helper()
	for {
		n, err := c.Finalize(h.T.Context())
		require.NoError(h.T, err)
		all += n
		if n == 0 {
			return all
		}
		h.Sync()
	}
}

func ends(h *syncertest.Stack, id string) map[string]event.Event {
	h.T.Helper()
	ends := map[string]event.Event{}
	for _, e := range allEvents(h) {
		if e.Type == event.CampaignClosed && e.CampaignID == id {
			ends[e.ID] = e
		}
	}
	return ends
}

// requireEnded checks that each packet has an owner or
// is returned, that as many were taken as claims
// report, and that one event has the sum of the others.
func requireEnded(h *syncertest.Stack, id string, taken int) {
	h.T.Helper()
	h.Sync()
	require.Empty(h.T, wrongEnd(h, id, taken))
	require.Zero(h.T, syncertest.Unapplied(h.T, h.DB))
}

func wrongEnd(h *syncertest.Stack, id string, taken int) string {
	h.T.Helper()
	var put, credited, back, owners, returned int64
	for _, p := range syncertest.PacketsOf(h.T, h.DB, id) {
		put += p.Amount
		switch {
		case p.ClaimID != nil && p.ReturnedAt == nil:
			owners++
		case p.ClaimID == nil && p.ReturnedAt != nil:
			returned, back = returned+1, back+p.Amount
		default:
			return fmt.Sprintf("packet %s has both of an owner and a return, or neither", p.ID)
		}
	}
	for _, e := range allEvents(h) {
		if e.Type == event.ClaimAccepted && e.CampaignID == id {
			credited += *e.Amount
		}
	}
	ends := ends(h, id)
	if len(ends) != 1 {
		return fmt.Sprintf("%d ends were told", len(ends))
	}
	end := ends[resolve.ClosedEventID(id)]
	told := int64(0)
	if end.Amount != nil {
		told = *end.Amount
	}
	want := []any{int64(taken), back, returned, put, "boss", "CNY"}
	if have := []any{owners, told, *end.Remaining, credited + told, end.UserID, end.Currency}; fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Sprintf("have %v, want %v; %d parked", have, want, len(syncertest.ParkedIDs(h.T, h.DB)))
	}
	return ""
}

// A restored MySQL may have holes among the positions of packets.
func TestCloser_ReturnsWhatNobodyTookOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, _ := clocked(t, db)
		id := h.OpenPackets(syncertest.ListOf("x", 20))
		h.Sync()
		h.Exec("UPDATE packets SET position = position + 8 WHERE campaign_id = ? AND position > 12", id)
		h.AddPackets(id, syncertest.ReleasedAt(syncertest.SplitOf(10, 1000), syncertest.InAnHour()))
		h.Sync()
		c := closer(h, 7)
		h.Claim(id, syncertest.Asks("u", 5)...)
		require.Zero(t, endAll(h, c), "it is open")
		h.Sync()
		h.Claim(id, syncertest.Asks("v", 4)...)
		h.Shut(id)
		require.Equal(t, models.OutcomeClosed, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
		require.Zero(t, endAll(h, c), "claims are on their way")
		require.Empty(t, ends(h, id))
		h.Sync()
		require.Equal(t, 1, endAll(h, c))
		require.Zero(t, endAll(h, closer(h, 7)))
		requireEnded(h, id, 9)
		requireSame(h, id)
		require.Equal(t, models.OutcomeClosed, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
		_, err := syncertest.NewCampaigns(t, db, h.Scripts).AddPackets(t.Context(), id, syncertest.ListOf("y", 2))
		require.ErrorIs(t, err, models.ErrClosed)
	})
}

// endTwoOf ends a campaign of 3 packets, and a later one of its id, of 4. Each
// has its own end.
func endTwoOf(h *syncertest.Stack, id string, between func()) {
	t := h.T
	t.Helper()
	again := h.Campaign(id)
	again.Version, again.Total = 0, 0
	finish := func() {
		h.Sync()
		h.Shut(id)
		h.Sync()
		require.Equal(t, 1, endAll(h, closer(h, 0)))
		h.Sync()
	}
	finish()
	between()
	require.NoError(t, h.Loader().Delete(t.Context(), id))
	h.Sync()
	_, _, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Create(t.Context(), again)
	require.NoError(t, err)
	require.NoError(t, h.Load(id))
	h.Sync()
	h.AddPackets(id, syncertest.ListOf("y", 4))
	finish()
	var amounts []int64
	for _, end := range ends(h, id) {
		amounts = append(amounts, *end.Amount)
	}
	require.ElementsMatch(t, []int64{6, 10}, amounts)
}

// Finance credits each event once, by its id. A restored MySQL has the ends
// from the stream, at their times.
func TestCloser_ALaterCampaignOfAnIDHasItsOwnEnd(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	dump := syncertest.DumpOf(t, h.DB)
	id := h.OpenPackets(syncertest.ListOf("x", 3))
	endTwoOf(h, id, func() {})
	ledger := func() (rows []string) {
		query := "SELECT CONCAT(at, id, amount) FROM ledger_events WHERE campaign_id = ? ORDER BY at"
		require.NoError(t, h.DB.Raw(query, id).Scan(&rows).Error)
		return rows
	}
	before := ledger()
	require.Len(t, before, 2)
	require.NoError(t, dump.Restore(h.DB))
	h.Sync()
	require.Equal(t, before, ledger())
	var at time.Time
	published := 0
	for round := 0; at.IsZero(); round++ { // the first one may load it
		require.Less(t, round, 10)
		published += endAll(h, closer(h, 0))
		h.Sync()
		require.NoError(t, h.DB.Raw("SELECT closed_told_at FROM definitions WHERE campaign_id = ?", id).Scan(&at).Error)
	}
	require.Equal(t, 1, published, "finance may have been restored as well")
	require.Equal(t, before, ledger())
	require.Contains(t, before[1], at.UTC().Format("15:04:05.000"))
	requireSame(h, id)
}

// The clock of the process that ended the first one may be ahead of that of
// the process that created the later one.
func TestCloser_ALaterCampaignOfAnIDHasItsOwnEndByAnyClock(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 3))
	endTwoOf(h, id, func() {
		h.Exec("UPDATE ledger_events SET at = ? WHERE campaign_id = ?", time.Now().UTC().Add(time.Minute), id)
	})
}

func TestCloser_NothingToReturnIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	coupon := h.Create(10, func(c *models.Campaign) { c.SenderID = "boss" })
	orphan := h.Create(0, func(c *models.Campaign) { c.Kind, c.PerUser = models.KindPacket, 1 })
	taken := h.OpenPackets(syncertest.ListOf("x", 3))
	_, _, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Create(t.Context(), syncertest.CampaignOf("spring", 5))
	require.NoError(t, err)
	h.AddPackets(orphan, syncertest.ListOf("x", 4))
	for _, id := range []string{coupon, orphan, taken} {
		h.Take(id, syncertest.Asks("u", 3)...)
		h.Shut(id)
	}
	h.Shut("spring") // it was never loaded
	h.Sync()
	require.Equal(t, 4, endAll(h, closer(h, 0)))
	for id, left := range map[string]int64{coupon: 7, orphan: 1, taken: 0, "spring": 5} {
		ends := ends(h, id)
		require.Len(t, ends, 1)
		end := ends[resolve.ClosedEventID(id)]
		require.Nil(t, end.Amount)
		require.Equal(t, left, *end.Remaining, id)
	}
	require.Contains(t, ends(h, "spring"), "2a6cf9f4-1771-5f54-a2df-7c52bbe138ec", "the id is documented")
	for _, p := range syncertest.PacketsOf(t, h.DB, orphan) {
		require.Nil(t, p.ReturnedAt, "there is no one to return it to")
	}
}

// It is in Redis, was evicted, or lost its keys. Its rest returns only
// when all claims are known.
func TestCloser_WhereverTheCampaignIs(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	evicted, lost := h.OpenPackets(syncertest.ListOf("x", 10)), h.OpenPackets(syncertest.ListOf("y", 10))
	h.Take(evicted, syncertest.Asks("u", 4)...)
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) > 0 }, 5*time.Second, 5*time.Millisecond)
	h.Sync()
	require.Equal(t, models.ResidencyEvicted, h.Residency(evicted))
	require.NoError(t, h.Load(lost))
	h.Claim(lost, syncertest.Asks("u", 4)...)
	h.Shut(evicted)
	h.Shut(lost)
	h.Lose(lost, syncertest.WholeCampaign)
	c := closer(h, 0)
	require.Zero(t, endAll(h, c), "claims are on their way")
	require.Empty(t, ends(h, lost))
	h.Sync()
	n := endAll(h, c) // it loads the lost one
	h.Sync()
	require.Equal(t, 2, n+endAll(h, c))
	requireEnded(h, evicted, 4)
	requireEnded(h, lost, 4)
	require.NoError(t, h.Load(evicted))
	require.Equal(t, models.OutcomeClosed, h.Claim(evicted, syncertest.Ask("late", ""))[0].Outcome)
	require.EqualValues(t, 0, h.InLists(evicted), "what went back is not brought again")
}

// A parked claim keeps its packet until it is given up.
func TestCloser_WaitsForParkedClaims(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	h.Exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
	h.Claim(id, syncertest.Asks("u", 6)...)
	h.Sync()
	require.Equal(t, 1, h.ParkedRows(id, "discarded_at IS NULL"))
	h.Shut(id)
	h.Sync()
	// a process saw the parked claim as well, which is not lost
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: {Epoch: 1, Seq: 6, Units: 6}}))
	c := closer(h, 0)
	n, err := c.Finalize(t.Context())
	require.Zero(t, n)
	require.ErrorIs(t, err, resolve.ErrUndrained)
	require.ErrorContains(t, err, "of user u-3")
	require.Empty(t, ends(h, id))
	h.Repair(id, true)
	h.Sync()
	require.Equal(t, 1, endAll(h, c))
	require.EqualValues(t, 5, *ends(h, id)[resolve.ClosedEventID(id)].Remaining, "the packet given up goes back")
}

// Redis lost a claim, then the whole lot, which nobody asks for any more:
// the packet of that claim goes back only when the claim is given up.
func TestCloser_CountsWhatALotThatIsAwayLost(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	h.Take(id, syncertest.Asks("u", 4)...)
	h.Shut(id)
	h.Sync()
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: {Epoch: 1, Seq: 5, Units: 5}}))
	h.Lose(id, syncertest.WholeCampaign)
	c := closer(h, 0)
	require.Zero(t, endAll(h, c), "it is loaded")
	h.Sync()
	n, err := c.Finalize(t.Context())
	require.Zero(t, n)
	require.ErrorContains(t, err, "1 claims are lost")
	h.Repair(id, true)
	h.Sync()
	require.Equal(t, 1, endAll(h, c))
	require.EqualValues(t, 6, *ends(h, id)[resolve.ClosedEventID(id)].Remaining)
}

// A failover lost the last claim before the close, and nobody claims any
// more: processes are asked what they saw before packets go back.
func TestCloser_AsksProcessesWhatTheySaw(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	clock := clockwork.NewFakeClock()
	c := restingCloser(h, 0, clock)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	h.Take(id, syncertest.Asks("u", 4)...)
	before := syncertest.DumpRedis(t, h.Redis)
	_, seen := h.ClaimAfter(id, lua.Position{}, syncertest.Ask("lost", ""))
	before.Restore(t, h.Redis)
	h.Shut(id)
	h.Sync()
	signals := h.Scripts.Signals(t.Context())
	require.Zero(t, endAll(h, c))
	if now := h.Scripts.Signals(t.Context()); now[0] != signals[0] { // as an API process does
		require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: seen.Position}))
	}
	clock.Advance(resolve.ReturnDelay)
	require.Zero(t, endAll(h, c))
	h.Sync()
	clock.Advance(resolve.ReturnDelay)
	_, err := c.Finalize(t.Context())
	require.ErrorContains(t, err, "1 claims are lost")
	h.Repair(id, true)
	h.Sync()
	require.Zero(t, endAll(h, c))
	clock.Advance(resolve.ReturnDelay)
	require.Equal(t, 1, endAll(h, c))
	require.EqualValues(t, 6, *ends(h, id)[resolve.ClosedEventID(id)].Remaining)
}

// What a campaign lost while others were ended counts.
func TestCloser_EachCampaignIsAsItIsNow(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	ids := []string{h.OpenPackets(syncertest.ListOf("x", 10)), h.OpenPackets(syncertest.ListOf("x", 10))}
	slices.Sort(ids)
	for _, id := range ids {
		h.Take(id, syncertest.Asks("u", 4)...)
		h.Shut(id)
	}
	h.Sync()
	c := resolve.FinalizerWithStep(closer(h, 0), func(step string) {
		if step == "applied" && len(ends(h, ids[0])) == 1 && h.Campaign(ids[1]).LostUnits == 0 {
			require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{ids[1]: {Epoch: 1, Seq: 5, Units: 5}}))
			h.Reload(ids[1])
		}
	})
	n, err := c.Finalize(t.Context())
	require.Equal(t, 1, n)
	require.ErrorContains(t, err, "1 claims are lost")
}

func TestCloser_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for _, where := range []struct {
		step string
		nth  int
	}{{"returned", 1}, {"returned", 3}, {"end noted", 1}, {"outbox written", 1}, {"committed", 1}, {"applied", 1}} {
		id := h.OpenPackets(syncertest.ListOf("x", 10))
		h.Take(id, syncertest.Asks("u", 4)...)
		h.Shut(id)
		h.Sync()
		seen := 0
		dying := resolve.FinalizerWithStep(closer(h, 3), func(step string) {
			if step == where.step {
				if seen++; seen == where.nth {
					panic(syncertest.Died{})
				}
			}
		})
		require.PanicsWithValue(t, syncertest.Died{}, func() { _, _ = dying.Finalize(t.Context()) }, where.step)
		var g errgroup.Group
		for range 3 {
			g.Go(func() error { _, err := closer(h, 3).Finalize(t.Context()); return err })
		}
		require.NoError(t, g.Wait(), where.step)
		relayAll(h)
		h.Sync()
		requireEnded(h, id, 4)
	}
}

// forgetfulRedis returns a function that restores Redis' present state,
// as if later writes had not reached its disk.
func forgetfulRedis(h *syncertest.Stack, id string) (forget func()) {
	h.T.Helper()
	state, err := h.Redis.HGetAll(h.T.Context(), h.Keys(id).State).Result()
	require.NoError(h.T, err)
	return func() { require.NoError(h.T, h.Redis.HSet(h.T.Context(), h.Keys(id).State, state).Err()) }
}

// Redis dies before the close is on its disk, and gives a packet out
// again. It must not be returned yet.
func TestCloser_ARedisThatForgetsTheCloseGivesNothingAwayTwice(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	clock := clockwork.NewFakeClock()
	c := restingCloser(h, 0, clock)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	h.Take(id, syncertest.Asks("u", 4)...)
	forget := forgetfulRedis(h, id)
	h.Shut(id)
	require.Zero(t, endAll(h, c))
	clock.Advance(resolve.ReturnDelay - time.Millisecond)
	require.Zero(t, endAll(h, c))
	require.Empty(t, ends(h, id))
	forget()
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
	clock.Advance(time.Hour)
	require.Zero(t, endAll(h, c), "the claim is on its way")
	h.Sync()
	n, err := c.Finalize(t.Context())
	require.Zero(t, n)
	require.ErrorIs(t, err, resolve.ErrUndrained)
	h.Sync()
	require.Equal(t, models.OutcomeClosed, h.Claim(id, syncertest.Ask("later", ""))[0].Outcome)
	require.Zero(t, endAll(h, c), "another load: it begins to wait again")
	clock.Advance(resolve.ReturnDelay)
	require.Equal(t, 1, endAll(h, c))
	requireEnded(h, id, 5)
}

// Control: without the delay a returned packet
// is taken, and the counters reveal it.
func TestCloser_WithoutRestingReturnsWhatAForgetfulRedisGivesAway(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	h.Take(id, syncertest.Asks("u", 4)...)
	forget := forgetfulRedis(h, id)
	h.Shut(id)
	h.Sync()
	require.Equal(t, 1, endAll(h, closer(h, 0)))
	forget()
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
	h.Sync()
	require.NotEmpty(t, wrongEnd(h, id, 5))
	require.Len(t, syncertest.ParkedIDs(t, h.DB), 1, "the flush does not give away what went back")
}

// A load of any shard restarts the delay: a shard
// that lost the close gave packets out again.
func TestCloser_ALoadOfAnyShardHasItWaitAnew(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	clock := clockwork.NewFakeClock()
	c := restingCloser(h, 0, clock)
	id := h.Create(0, func(c *models.Campaign) {
		c.Kind, c.Currency, c.SenderID, c.Shards = models.KindPacket, "CNY", "boss", 2
	})
	h.AddPackets(id, syncertest.ListOf("x", 10))
	require.NoError(t, h.Maintainer().Attend(t.Context()))
	h.Sync()
	for shard := range 2 {
		require.NoError(t, h.Load(models.ShardID(id, 1+shard)))
		h.Sync()
	}
	h.Shut(id)
	require.Zero(t, endAll(h, c))
	clock.Advance(resolve.ReturnDelay - time.Millisecond)
	require.Zero(t, endAll(h, c))
	h.Reload(models.ShardID(id, 2))
	clock.Advance(2 * time.Millisecond)
	require.Zero(t, endAll(h, c))
	clock.Advance(resolve.ReturnDelay)
	require.Equal(t, 1, endAll(h, c))
	requireEnded(h, id, 0)
}
