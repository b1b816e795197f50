package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

// clocked is a house whose Redis' clock is the test's.
func clocked(t testing.TB, db *gorm.DB) (h *house, ms *atomic.Int64) {
	t.Helper()
	ms = new(atomic.Int64)
	ms.Store(time.Now().UnixMilli())
	server := testenv.Redis(t)
	scripts, err := lua.New(server.Client(), lua.Options{ServerClock: ms.Load})
	require.NoError(t, err)
	h = &house{t: t, server: server, rdb: server.Client(), db: db, scripts: scripts}
	h.writer = startWriter(t, syncer.WriterConfig{DB: db, FlushInterval: time.Millisecond})
	h.group()
	return h, ms
}

func (h *house) expirer(change func(cfg *syncer.ExpirerConfig)) *syncer.Expirer {
	h.t.Helper()
	cfg := syncer.ExpirerConfig{DB: h.db, Scripts: h.scripts, Relay: h.relay(), Rest: -1, Logger: quiet()}
	if change != nil {
		change(&cfg)
	}
	e, err := syncer.NewExpirer(cfg)
	require.NoError(h.t, err)
	return e
}

func (h *house) expire(e *syncer.Expirer) int {
	h.t.Helper()
	n, err := e.Expire(h.t.Context())
	require.NoError(h.t, err)
	return n
}

func hold(d time.Duration) func(c *models.Campaign) {
	return func(c *models.Campaign) { c.HoldForMs = d.Milliseconds() }
}

func TestExpirer_ReleasesWhatIsDueAndNothingElse(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		id := h.open(10, func(c *models.Campaign) { c.HoldForMs, c.PerUser = 60_000, 1 })
		forever := h.open(10, nil)
		h.take(forever, asks("f", 3)...)
		e := h.expirer(func(cfg *syncer.ExpirerConfig) { cfg.Batch = 2 })
		early := h.take(id, asks("u", 5)...)
		ms.Add(1)
		late := h.take(id, ask("late", ""))
		_, err := h.resolver().Redeem(t.Context(), early[1], "o")
		require.NoError(t, err)
		ms.Add(59_998)
		require.Zero(t, h.expire(e), "not yet")
		ms.Add(1)
		require.Equal(t, 4, h.expire(e))
		require.Zero(t, h.expire(e))
		h.sync()
		h.requireSame(id)
		require.Equal(t, []models.Outcome{models.OutcomeUserLimit, models.OutcomeClaimed, models.OutcomeUserLimit},
			outcomesOf(h.claim(id, ask("u-1", ""), ask("u-0", ""), ask("late", ""))))
		res, err := h.resolver().Redeem(t.Context(), early[0], "o")
		require.NoError(t, err)
		require.Equal(t, []any{models.ResolvedAlreadyReleased, models.ClaimExpired}, []any{res.Resolved, res.Claim.Status})
		res, err = h.resolver().Release(t.Context(), early[0], "")
		require.NoError(t, err)
		require.Equal(t, models.ResolvedBefore, res.Resolved)
		ms.Add(1)
		require.Equal(t, 1, h.expire(e))
		res, err = h.resolver().Release(t.Context(), late[0], "")
		require.NoError(t, err)
		require.Equal(t, models.ResolvedBefore, res.Resolved)
		for _, event := range h.allEvents() {
			if event.Type == models.EventClaimReleased {
				require.Equal(t, models.ReasonExpired, event.Reason)
			}
		}
		ms.Add(120_000)
		h.sync()
		require.Equal(t, 1, h.expire(e), "the user who came again")
		h.sync()
		h.requireSame(id)
		h.requireSame(forever)
	})
}

// A clock that steps, and rows that come late, in any order: none is lost.
func TestExpirer_LosesNoneToHolesAndClockSteps(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, openServer(t))
	id := h.open(1000, hold(time.Minute))
	e := h.expirer(func(cfg *syncer.ExpirerConfig) { cfg.Batch, cfg.FullEvery = 7, 10*time.Minute })
	start := ms.Load()
	h.take(id, asks("a", 10)...)
	ms.Store(start + time.Hour.Milliseconds()) // for a moment
	h.take(id, asks("b", 10)...)
	ms.Store(start + 1000)
	made := h.claim(id, asks("c", 20)...)
	require.Len(t, made, 20)
	events := h.unsynced()
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	require.NoError(t, submitAll(t.Context(), h.writer, events[:10]))
	ms.Store(start + 62_000)
	require.Equal(t, 20, h.expire(e))
	require.NoError(t, submitAll(t.Context(), h.writer, events[10:]))
	require.Equal(t, 10, h.expire(e))
	h.sync()
	h.requireSame(id)
	ms.Store(start + 2*time.Hour.Milliseconds())
	require.Equal(t, 10, h.expire(e))
	h.sync()
	h.requireSame(id)
	require.Zero(t, h.campaign(id).Claimed)
}

// unsynced are the claims of the stream that nobody has read, which stay so.
func (h *house) unsynced() (all []models.Event) {
	h.t.Helper()
	unread, err := h.scripts.Unread(h.t.Context(), 0, "syncer")
	require.NoError(h.t, err)
	entries, err := h.rdb.XRange(h.t.Context(), lua.StreamKey(0), "("+unread.Delivered.String(), "+").Result()
	require.NoError(h.t, err)
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		require.NoError(h.t, err)
		if e.Type == models.EventClaimAccepted {
			all = append(all, e)
		}
	}
	return all
}

// Redeem, release and expiry at once: each claim has one outcome, and quota comes back for what did not stay.
func TestExpirer_RacesRedeemAndRelease(t *testing.T) {
	t.Parallel()
	claims := 60
	if testenv.Soak() {
		claims = 1000
	}
	h, ms := clocked(t, openServer(t))
	id := h.open(int64(claims), hold(time.Second))
	ids := h.take(id, asks("u", claims)...)
	ms.Add(1000)
	won := make([]atomic.Int64, claims)
	var g errgroup.Group
	for caller := range 16 {
		r := h.resolver()
		order := rand.Perm(claims)
		g.Go(func() error {
			for _, i := range order {
				var res models.Resolution
				var err error
				if caller%4 == 0 {
					res, err = r.Release(t.Context(), ids[i], "")
				} else {
					res, err = r.Redeem(t.Context(), ids[i], fmt.Sprint("order-", caller))
				}
				if err != nil {
					return err
				}
				if res.Resolved == models.ResolvedNow {
					won[i].Add(1)
				}
			}
			return nil
		})
	}
	for range 2 { // a leader that was asleep, and who follows
		e := h.expirer(func(cfg *syncer.ExpirerConfig) { cfg.Batch = 5 })
		g.Go(func() error { _, err := e.Expire(t.Context()); return err })
	}
	require.NoError(t, g.Wait())
	h.relayAll()
	h.sync()
	h.requireSame(id)
	counts := map[models.ClaimStatus]int64{}
	for i, claim := range ids {
		var status models.ClaimStatus
		require.NoError(t, h.db.Raw("SELECT status FROM claims WHERE id = ?", claim).Scan(&status).Error)
		counts[status]++
		require.Equal(t, status != models.ClaimExpired, won[i].Load() == 1, "%s, won %d times", status, won[i].Load())
	}
	t.Logf("%v", counts)
	require.Zero(t, counts[models.ClaimClaimed])
	state, err := h.scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, counts[models.ClaimRedeemed], state.Taken)
}

func TestExpirer_KilledBetweenAnyTwoStepsGivesBackOnce(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, openServer(t))
	id := h.open(40, hold(time.Second))
	h.take(id, asks("u", 40)...)
	ms.Add(1000)
	for _, step := range []string{"found", "claims moved", "books moved", "committed", "looked", "told", "marked"} {
		require.True(t, killedAt(step, func(step func(string)) {
			_, _ = syncer.ExpirerWithStep(h.expirer(func(cfg *syncer.ExpirerConfig) { cfg.Batch = 5 }), step).Expire(t.Context())
		}), step)
	}
	h.expire(h.expirer(nil))
	h.relayAll()
	h.sync()
	h.requireSame(id)
	state, err := h.scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 40}, []int64{state.Taken, state.Released})
}

// A year of holds that end together goes in transactions of a bounded number of claims, and leaves nothing.
func TestExpirer_SweepsAYearInBatches(t *testing.T) {
	t.Parallel()
	claims := 6000 // more than a chunk
	if testenv.Soak() {
		claims = 100_000
	}
	h, ms := clocked(t, openServer(t))
	id := h.open(int64(claims), hold(365*24*time.Hour))
	for range claims / 1000 {
		h.take(id, asks(fmt.Sprint(ms.Load()), 1000)...)
		ms.Add(1)
	}
	ms.Add(366 * 24 * time.Hour.Milliseconds())
	begun := time.Now()
	batches, released := 0, int64(0)
	e := syncer.ExpirerWithStep(h.expirer(nil), func(name string) {
		if name == "committed" {
			batches++
			now := h.campaign(id).ReleasedClaims
			require.LessOrEqual(t, now-released, int64(syncer.ExpireBatchDefault), "claims of one transaction")
			released = now
		}
	})
	require.Equal(t, claims, h.expire(e))
	t.Logf("%d claims in %d batches, %s", claims, batches, time.Since(begun))
	require.GreaterOrEqual(t, batches, claims/syncer.ExpireBatchDefault)
	h.requireSame(id)
	require.Zero(t, h.campaign(id).Claimed)
	require.Zero(t, h.expire(e))
}
