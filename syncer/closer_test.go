package syncer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/models"
	"dibs/syncer"
)

// houseOn is a house over a given database.
func houseOn(t testing.TB, db *gorm.DB) *house {
	t.Helper()
	h, _ := clocked(t, db)
	return h
}

// closer is one that does not wait longer than for what it must see.
func (h *house) closer(batch int) *syncer.Closer {
	h.t.Helper()
	return syncer.RestlessCloser(h.restingCloser(batch, nil))
}

func (h *house) restingCloser(batch int, clock clockwork.Clock) *syncer.Closer {
	h.t.Helper()
	c, err := syncer.NewCloser(syncer.CloserConfig{
		DB: h.db, Scripts: h.scripts, Hydrator: h.hydrator(), Relay: h.relay(), Batch: batch, Logger: quiet(), Clock: clock,
	})
	require.NoError(h.t, err)
	return c
}

// endAll is a round of a closer that must not fail.
func (h *house) endAll(c *syncer.Closer) int {
	h.t.Helper()
	n, err := c.Close(h.t.Context())
	require.NoError(h.t, err)
	return n
}

// ends are the distinct campaign.closed events of the stream.
func (h *house) ends(id string) map[string]models.Event {
	h.t.Helper()
	ends := map[string]models.Event{}
	for _, e := range h.allEvents() {
		if e.Type == models.EventCampaignClosed && e.CampaignID == id {
			ends[e.ID] = e
		}
	}
	return ends
}

// requireEnded checks that each packet has either an owner or gone back, that as many were taken as claims say, and that one event
// told the sum of the others.
func (h *house) requireEnded(id string, taken int) {
	h.t.Helper()
	require.Empty(h.t, h.wrongEnd(id, taken))
	require.Zero(h.t, unapplied(h.t, h.db))
}

func (h *house) wrongEnd(id string, taken int) string {
	h.t.Helper()
	var put, credited, back, owners, returned int64
	for _, p := range packetsOf(h.t, h.db, id) {
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
	for _, e := range h.allEvents() {
		if e.Type == models.EventClaimAccepted && e.CampaignID == id {
			credited += *e.Amount
		}
	}
	ends := h.ends(id)
	if len(ends) != 1 {
		return fmt.Sprintf("%d ends were told", len(ends))
	}
	end := ends[syncer.ClosedEventID(id)]
	told := int64(0)
	if end.Amount != nil {
		told = *end.Amount
	}
	want := []any{int64(taken), back, returned, put, "boss", "CNY"}
	if have := []any{owners, told, *end.Remaining, credited + told, end.UserID, end.Currency}; fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Sprintf("have %v, want %v; %d parked", have, want, len(parkedIDs(h.t, h.db)))
	}
	return ""
}

func TestCloser_ReturnsWhatNobodyTookOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		h := houseOn(t, db)
		id := h.openPackets(listOf("x", 20), releasedAt(splitOf(10, 1000), inAnHour()))
		c := h.closer(7)
		h.claim(id, asks("u", 5)...)
		require.Zero(t, h.endAll(c), "it is open")
		h.sync()
		h.claim(id, asks("v", 4)...)
		h.shut(id)
		require.Equal(t, models.OutcomeClosed, h.claim(id, ask("late", ""))[0].Outcome)
		require.Zero(t, h.endAll(c), "claims are on their way")
		require.Empty(t, h.ends(id))
		h.sync()
		require.Equal(t, 1, h.endAll(c))
		require.Zero(t, h.endAll(c))
		require.Zero(t, h.endAll(h.closer(7)))
		h.sync() // the writer passes over it
		h.requireEnded(id, 9)
		h.requireSame(id)
		require.Equal(t, models.OutcomeClosed, h.claim(id, ask("late", ""))[0].Outcome)
		_, err := newCampaigns(t, db, h.scripts).AddPackets(t.Context(), id, listOf("y", 2))
		require.ErrorIs(t, err, models.ErrClosed)
	})
}

func TestCloser_NothingToReturnIsToldAllTheSame(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		h := houseOn(t, db)
		coupon := h.open(10, func(c *models.Campaign) { c.SenderID = "boss" })
		orphan := h.open(0, func(c *models.Campaign) { c.Kind, c.PerUser = models.KindPacket, 1 })
		taken := h.openPackets(listOf("x", 3))
		never := campaignOf("never", 5)
		_, _, err := newCampaigns(t, db, h.scripts).Create(t.Context(), never)
		require.NoError(t, err)
		h.addPackets(orphan, listOf("x", 4))
		for _, id := range []string{coupon, orphan, taken} {
			h.take(id, asks("u", 3)...)
			h.shut(id)
		}
		h.shut("never")
		require.Equal(t, 4, h.endAll(h.closer(0)))
		for id, left := range map[string]int64{coupon: 7, orphan: 1, taken: 0, "never": 5} {
			ends := h.ends(id)
			require.Len(t, ends, 1)
			end := ends[syncer.ClosedEventID(id)]
			require.Nil(t, end.Amount)
			require.Equal(t, left, *end.Remaining, id)
		}
		for _, p := range packetsOf(t, db, orphan) {
			require.Nil(t, p.ReturnedAt, "there is nobody to return it to")
		}
	})
}

// It is in Redis, was evicted, is lost: only who knows of all claims returns the rest.
func TestCloser_WhereverTheCampaignIs(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	evicted, lost := h.openPackets(listOf("x", 10)), h.openPackets(listOf("y", 10))
	h.take(evicted, asks("u", 4)...)
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) > 0 && h.residency(evicted) == models.ResidencyEvicted },
		5*time.Second, 5*time.Millisecond)
	require.NoError(t, h.hydrate(lost))
	h.claim(lost, asks("u", 4)...)
	h.shut(evicted)
	h.shut(lost)
	h.lose(lost, wholeCampaign)
	c := h.closer(0)
	for range 2 { // noticed, and then known
		n, err := c.Close(t.Context())
		require.ErrorIs(t, err, syncer.ErrUnsettled)
		require.LessOrEqual(t, n, 1)
	}
	h.requireEnded(evicted, 4)
	require.Equal(t, models.ResidencyLost, h.residency(lost))
	require.Empty(t, h.ends(lost))
	h.sync()
	require.NoError(t, h.hydrate(lost))
	require.Equal(t, 1, h.endAll(c))
	h.requireEnded(lost, 4)
	require.NoError(t, h.hydrate(evicted))
	require.Equal(t, models.OutcomeClosed, h.claim(evicted, ask("late", ""))[0].Outcome)
	require.EqualValues(t, 0, h.inLists(evicted), "what went back is not brought again")
}

// A parked claim holds its packet, until it is written or given up.
func TestCloser_WaitsForParkedClaims(t *testing.T) {
	t.Parallel()
	for name, discard := range map[string]bool{"written": false, "given up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			id := h.openPackets(listOf("x", 10))
			h.exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
			h.claim(id, asks("u", 6)...)
			h.sync()
			require.Equal(t, 1, h.parkedRows(id, "discarded_at IS NULL"))
			h.shut(id)
			c := h.closer(0)
			n, err := c.Close(t.Context())
			require.Zero(t, n)
			require.ErrorIs(t, err, syncer.ErrUnsettled)
			require.ErrorContains(t, err, "of user u-3")
			require.Empty(t, h.ends(id))
			if !discard {
				h.accept()
				h.repair(id, syncer.RepairHow{})
				require.Equal(t, 1, h.endAll(c))
				h.requireEnded(id, 6)
				return
			}
			h.repair(id, syncer.RepairHow{DiscardParked: true})
			require.Equal(t, 1, h.endAll(c))
			end := h.ends(id)[syncer.ClosedEventID(id)]
			require.EqualValues(t, 5, *end.Remaining, "the packet given up goes back")
		})
	}
}

// Whoever returns dies after any step, and others return meanwhile: in the end all went back once.
func TestCloser_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		h := houseOn(t, db)
		for _, where := range []struct {
			step string
			nth  int
		}{{"returned", 1}, {"returned", 3}, {"told marked", 1}, {"outbox written", 1}, {"committed", 1}, {"told", 1}, {"marked", 1}} {
			id := h.openPackets(listOf("x", 10))
			h.take(id, asks("u", 4)...)
			h.shut(id)
			seen := 0
			dying := syncer.CloserWithStep(h.closer(3), func(step string) {
				if step == where.step {
					if seen++; seen == where.nth {
						panic(died{})
					}
				}
			})
			require.PanicsWithValue(t, died{}, func() { _, _ = dying.Close(t.Context()) }, where.step)
			var g errgroup.Group
			for range 3 {
				g.Go(func() error { _, err := h.closer(3).Close(t.Context()); return err })
			}
			require.NoError(t, g.Wait(), where.step)
			h.relayAll()
			h.sync()
			h.requireEnded(id, 4)
		}
	})
}

// forgetfulRedis returns what has Redis hold the state that it holds now once more: it died before that went to its disk.
func (h *house) forgetfulRedis(id string) (forget func()) {
	h.t.Helper()
	state, err := h.rdb.HGetAll(h.t.Context(), h.keys(id).State).Result()
	require.NoError(h.t, err)
	return func() { require.NoError(h.t, h.rdb.HSet(h.t.Context(), h.keys(id).State, state).Err()) }
}

// Redis dies in the second before the close is on its disk, and gives a packet away again: the closer has not returned it yet.
func TestCloser_ARedisThatForgetsTheCloseGivesNothingAwayTwice(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	clock := clockwork.NewFakeClock()
	c := h.restingCloser(0, clock)
	id := h.openPackets(listOf("x", 10))
	h.take(id, asks("u", 4)...)
	forget := h.forgetfulRedis(id)
	h.shut(id)
	require.Zero(t, h.endAll(c))
	clock.Advance(syncer.RestForDefault - time.Millisecond)
	require.Zero(t, h.endAll(c))
	require.Empty(t, h.ends(id))
	forget()
	require.Equal(t, models.OutcomeClaimed, h.claim(id, ask("late", ""))[0].Outcome)
	clock.Advance(time.Hour)
	n, err := c.Close(t.Context())
	require.Zero(t, n)
	require.ErrorIs(t, err, syncer.ErrUnsettled)
	h.sync()
	require.NoError(t, h.hydrate(id))
	require.Equal(t, models.OutcomeClosed, h.claim(id, ask("later", ""))[0].Outcome)
	require.Zero(t, h.endAll(c), "another load: it begins to wait anew")
	clock.Advance(syncer.RestForDefault)
	require.Equal(t, 1, h.endAll(c))
	h.requireEnded(id, 5)
}

// The control: one that returns at the first look has given back what is taken then, and the books tell.
func TestCloser_WithoutRestingReturnsWhatAForgetfulRedisGivesAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 10))
	h.take(id, asks("u", 4)...)
	forget := h.forgetfulRedis(id)
	h.shut(id)
	require.Equal(t, 1, h.endAll(h.closer(0)))
	forget()
	require.Equal(t, models.OutcomeClaimed, h.claim(id, ask("late", ""))[0].Outcome)
	h.sync()
	require.NotEmpty(t, h.wrongEnd(id, 5))
	require.Len(t, parkedIDs(t, h.db), 1, "the flush does not give away what went back")
}

// The books say that it left Redis, and Redis has it: it may give packets away still.
func TestCloser_WaitsForALoadThatShouldNotBeThere(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 10))
	h.take(id, asks("u", 4)...)
	h.exec("UPDATE campaigns SET residency = ?, status = 'closed' WHERE id = ?", models.ResidencyEvicted, id)
	_, err := h.closer(0).Close(t.Context())
	require.ErrorIs(t, err, syncer.ErrUnsettled)
	require.ErrorContains(t, err, "yet redis holds load 1")
	require.Empty(t, h.ends(id))
}

// The control: one that does not wait for claims on their way returns packets that were taken, and the books tell.
func TestCloser_WithoutWaitingReturnsWhatWasTaken(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 10))
	h.take(id, asks("u", 3)...)
	h.claim(id, asks("v", 3)...)
	h.shut(id)
	_, err := syncer.HastyCloser(h.closer(0)).Close(t.Context())
	require.NoError(t, err)
	h.sync()
	require.NotEmpty(t, h.wrongEnd(id, 6))
	require.Len(t, parkedIDs(t, h.db), 3, "the flush does not give away what went back")
}
