package resolve_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

func clocked(t testing.TB, db *gorm.DB) (h *syncertest.Stack, ms *atomic.Int64) {
	t.Helper()
	ms = new(atomic.Int64)
	ms.Store(time.Now().UnixMilli())
	server := testenv.Redis(t)
	scripts, err := lua.New(server.Client(), lua.Options{ServerClock: ms.Load})
	require.NoError(t, err)
	h = &syncertest.Stack{T: t, Server: server, Redis: server.Client(), DB: db, Scripts: scripts}
	h.Writer = syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
	return h, ms
}

func expirer(h *syncertest.Stack, batch int) *resolve.Expirer {
	h.T.Helper()
	return resolve.ExpirerWithBatch(resolve.NewExpirer(relay(h), nil, nil), batch)
}

func expire(h *syncertest.Stack, e *resolve.Expirer) int {
	h.T.Helper()
	n, err := e.Expire(h.T.Context())
	require.NoError(h.T, err)
	return n
}

func hold(d time.Duration) func(c *models.Campaign) {
	return func(c *models.Campaign) { c.HoldForMs = d.Milliseconds() }
}

func TestExpirer_ReleasesWhatIsDueAndNothingElse(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		id := h.Create(10, func(c *models.Campaign) { c.HoldForMs, c.PerUser = 60_000, 1 })
		forever := h.Create(10, nil)
		h.Take(forever, syncertest.Asks("f", 3)...)
		e := expirer(h, 2)
		early := h.Take(id, syncertest.Asks("u", 5)...)
		ms.Add(1)
		h.Take(id, syncertest.Ask("late", ""))
		_, err := resolver(h).Redeem(t.Context(), early[1], "o")
		require.NoError(t, err)
		ms.Add(59_998)
		require.Zero(t, expire(h, e), "not yet")
		ms.Add(1)
		require.Equal(t, 4, expire(h, e))
		require.Zero(t, expire(h, e))
		h.Sync()
		requireSame(h, id)
		require.Equal(t, []models.Outcome{models.OutcomeUserLimit, models.OutcomeClaimed, models.OutcomeUserLimit},
			syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("u-1", ""), syncertest.Ask("u-0", ""), syncertest.Ask("late", ""))))
		ms.Add(1)
		require.Equal(t, 1, expire(h, e))
		for _, e := range allEvents(h) {
			if e.Type == event.ClaimReleased {
				require.Equal(t, models.ReasonExpired, e.Reason)
			}
		}
		ms.Add(120_000)
		h.Sync()
		require.Equal(t, 1, expire(h, e), "the user who came again")
		h.Sync()
		requireSame(h, id)
		requireSame(h, forever)
	})
}

// Each pass gives every campaign its share, however much is due in the
// others. A stopped round loses nothing.
func TestExpirer_TakesTurns(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	many, few := h.Create(1000, hold(time.Minute)), h.Create(1000, hold(time.Minute))
	h.Take(many, syncertest.Asks("many", 300)...)
	ms.Add(1)
	h.Take(few, syncertest.Asks("few", 25)...)
	ms.Add(time.Minute.Milliseconds())
	back := func(id string) (n int64) {
		require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND status = 'expired'", id).Scan(&n).Error)
		return n
	}

	ctx, cut := context.WithCancel(t.Context())
	e := resolve.ExpirerWithStep(expirer(h, 20), func(name string) {
		if name == "committed" && back(many) == 10 {
			cut()
		}
	})
	_, err := e.Expire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []int64{10, 10}, []int64{back(many), back(few)})

	var order []string
	e = resolve.ExpirerWithStep(expirer(h, 20), func(name string) { // of the next leader
		if name == "committed" {
			order = append(order, fmt.Sprint(back(many), " ", back(few)))
		}
	})
	require.Equal(t, 305, expire(h, e))
	require.Equal(t, []string{"20 20", "30 25", "50 25", "70 25"}, order[:4])
	relayAll(h) // what the stopped round had decided
	requireSame(h, many)
	requireSame(h, few)
}

// Claims that are written during the scan and behind the cursor still expire.
func TestExpirer_AFlushWhileItLooksIsNotForgotten(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	id := h.Create(100, hold(time.Minute))
	require.Len(t, h.Claim(id, syncertest.Asks("a", 9)...), 9)
	events := slices.DeleteFunc(allEvents(h), func(e event.Event) bool { return e.Type != event.ClaimAccepted })
	require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, []event.Event{events[1], events[4]}))
	ms.Add(time.Minute.Milliseconds())
	late := [][]event.Event{{events[0]}, {events[2], events[3]}, events[5:]}
	var g errgroup.Group
	e := resolve.ExpirerWithStep(expirer(h, 100), func(name string) {
		if name == "found" && len(late) > 0 {
			some := late[0]
			late = late[1:]
			g.Go(func() error { return syncertest.SubmitAll(t.Context(), h.Writer, some) })
		}
	})
	expired := expire(h, e)
	require.NoError(t, g.Wait())
	for len(late) > 0 {
		require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, late[0]))
		late = late[1:]
	}
	ms.Add(time.Hour.Milliseconds())
	require.Equal(t, 9, expired+expire(h, e))
	var due int
	query := "SELECT (SELECT COUNT(*) FROM hold_cursors WHERE due_ms IS NOT NULL) + (SELECT COUNT(*) FROM hold_dues)"
	require.NoError(t, h.DB.Raw(query).Scan(&due).Error)
	require.Zero(t, due)
	h.Sync()
	requireSame(h, id)
}

func TestExpirer_ALockedCampaignWaitsByItself(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	locked, free := h.Create(100, hold(time.Minute)), h.Create(100, hold(time.Minute))
	claims := h.Take(locked, syncertest.Asks("u", 5)...)
	h.Take(free, syncertest.Asks("u", 5)...)
	ms.Add((time.Minute + 40*time.Second).Milliseconds())
	tx := h.DB.Begin()
	require.NoError(t, tx.Exec("UPDATE claims SET synced_at = '2020-01-01 00:00:00.000' WHERE id = ?", claims[0]).Error)
	e := resolve.NewExpirer(relay(h), nil, nil)
	n, err := e.Expire(t.Context())
	require.ErrorContains(t, err, locked)
	require.Equal(t, 5, n)
	require.NoError(t, tx.Commit().Error)
	require.Equal(t, 5, expire(h, e))
	requireSame(h, locked)
	requireSame(h, free)
}

// What is decided while the expirer reads single holds is in force.
func TestExpirer_LeavesAHoldThatStartsAgainMeanwhile(t *testing.T) {
	t.Parallel()
	for _, decides := range []struct {
		after string // a read of the expirer
		what  func(r *resolve.Resolver, claim string) (models.Resolution, error)
	}{
		{"hold_dues", func(r *resolve.Resolver, claim string) (models.Resolution, error) {
			return r.Extend(t.Context(), claim, time.Minute, "")
		}},
		{"c", func(r *resolve.Resolver, claim string) (models.Resolution, error) {
			return r.Reopen(t.Context(), claim, "o", "")
		}},
	} {
		h, ms := clocked(t, syncertest.OpenServer(t))
		id := h.Create(10, func(c *models.Campaign) { c.HoldForMs, c.HoldMaxMs = 60_000, 600_000 })
		claim := h.Take(id, syncertest.Ask("u", ""))[0]
		r := resolver(h)
		_, err := r.Extend(t.Context(), claim, time.Minute, "")
		require.NoError(t, err)
		if decides.after == "c" {
			_, err = r.Redeem(t.Context(), claim, "o")
			require.NoError(t, err)
		}
		h.Sync()
		h.Exec("UPDATE hold_dues SET due_ms = ?", ms.Load())
		isDone := false
		err = h.DB.Callback().Query().After("gorm:query").Register("decides", func(tx *gorm.DB) {
			if tx.Statement.Table != decides.after || isDone {
				return
			}
			isDone = true
			_, err := decides.what(r, claim)
			require.NoError(t, err)
		})
		require.NoError(t, err)
		e := expirer(h, 10)
		require.Zero(t, expire(h, e), decides.after)
		require.True(t, isDone, decides.after)
		h.Sync()
		ms.Add(600_000)
		require.Equal(t, 1, expire(h, e), "the hold ends later")
	}
}

// Holds of a partition that may not end delay no others,
// nor do those of claims that were archived.
func TestExpirer_OtherPartitionsGoOn(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	scripts, err := lua.New(h.Redis, lua.Options{ServerClock: ms.Load, Partitions: 2})
	require.NoError(t, err)
	h.Scripts = scripts
	by := make(map[int]string)
	for len(by) < 2 {
		id := h.Create(10, func(c *models.Campaign) { c.HoldForMs, c.HoldMaxMs = 60_000, 600_000 })
		by[lua.PartitionOf(id, 2)] = id
	}
	claims := append(h.Take(by[0], syncertest.Asks("u", 2)...), h.Take(by[1], syncertest.Asks("u", 2)...)...)
	for _, i := range []int{0, 2} {
		_, err := resolver(h).Extend(t.Context(), claims[i], time.Minute, "")
		require.NoError(t, err)
	}
	h.Sync()
	h.Exec("INSERT INTO hold_dues (claim_id, due_ms) VALUES ('archived', 1)")
	ms.Add(240_000)
	e := resolve.NewExpirer(relay(h), func(context.Context, []int) ([]int, error) { return []int{1}, nil }, nil)
	require.Equal(t, 2, expire(h, resolve.ExpirerWithLots(resolve.ExpirerWithBatch(e, 1), 1)))
}

// After Redis came back older, claims share a seq, and a later one may be
// before an earlier one. Each hold ends by itself.
func TestExpirer_ClaimsOfOneSeqAllExpire(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2, 100} {
		h, ms := clocked(t, syncertest.OpenServer(t))
		id := h.Create(10, hold(time.Minute))
		first := h.Take(id, syncertest.Ask("first", ""))
		before := syncertest.DumpRedis(t, h.Redis)
		lost := h.Take(id, syncertest.Asks("lost", 2)...)
		before.Restore(t, h.Redis)
		ms.Add(30_000)
		again := h.Take(id, syncertest.Ask("again", ""))
		require.NoError(t, h.Load(id))
		last := h.Take(id, syncertest.Asks("last", 3)...)
		statuses := func(ids ...string) (all []string) {
			query := "SELECT status FROM claims WHERE id IN ? ORDER BY claimed_at, id"
			require.NoError(t, h.DB.Raw(query, ids).Scan(&all).Error)
			return all
		}
		e := expirer(h, batch)
		ms.Add(30_000)
		require.Equal(t, 3, expire(h, e), "batch %d", batch)
		require.Equal(t, []string{"expired", "expired", "expired"}, statuses(slices.Concat(first, lost)...))
		ms.Add(30_000)
		require.Equal(t, 4, expire(h, e), "batch %d", batch)
		require.Equal(t, []string{"expired", "expired", "expired", "expired"}, statuses(slices.Concat(again, last)...))
		h.Sync()
		requireSame(h, id)
	}
}

func TestExpirer_AReadThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	id := h.Create(10, func(c *models.Campaign) { c.HoldForMs, c.Shards = 60_000, 2 })
	require.NoError(t, h.Load(models.ShardID(id, 1)))
	h.Take(models.ShardID(id, 1), syncertest.Asks("u", 2)...)
	h.Exec("ALTER TABLE claims MODIFY shard VARCHAR(20)")
	h.Exec("UPDATE claims SET shard = '1x'") // a 1 to MySQL
	ms.Add(time.Minute.Milliseconds())
	_, err := expirer(h, 10).Expire(t.Context())
	require.ErrorContains(t, err, "1x")
}
