package reconcile_test

import (
	"database/sql"
	"fmt"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/resolve"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// meddled are the scripts of a Redis in which something happens before some commands.
func meddled(h *syncertest.Stack, does map[string]func()) *lua.Scripts {
	h.T.Helper()
	return syncertest.Hooked(h.T, h.Redis, lua.Options{}, syncertest.Hooks{Before: func(name string) error {
		if do := does[name]; do != nil {
			do()
		}
		return nil
	}})
}

// reconciler makes a reconciler that works with one Redis, and rebuilds with another.
func reconciler(h *syncertest.Stack, scripts, rebuilds *lua.Scripts) *reconcile.Reconciler {
	h.T.Helper()
	return reconcile.New(h.DB, scripts, syncertest.NewHydrator(h.T, h.DB, rebuilds), syncertest.Quiet(), nil)
}

// observesLots is what a load sends first, see syncertest.Hooks.
const observesLots = "pipeline state"

// displace parks a claim of a campaign whose seq another claim has.
func displace(h *syncertest.Stack, id string, change func(e *models.Event)) {
	h.T.Helper()
	e := syncertest.ClaimsOf(id, 1, 1)[0]
	e.Quantity = 1
	if change != nil {
		change(&e)
	}
	require.NoError(h.T, syncertest.Submit(h.T.Context(), h.Writer, e))
	require.Equal(h.T, 1, h.ParkedRows(id, "discarded_at IS NULL"))
}

func rowsOf(h *syncertest.Stack, id, where string) (n int) {
	h.T.Helper()
	require.NoError(h.T, h.DB.Raw("SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND "+where, id).Scan(&n).Error)
	return n
}

// A claim that was given up stays given up, though its event is in the stream and its row could be written by now.
func TestRepair_AClaimThatWasGivenUpStaysAway(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Refusing()
	h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})
	h.Accept()
	hset(h, h.Keys(id).State, "taken", "5")
	done := h.Repair(id, reconcile.RepairHow{})
	require.Equal(t, []string{reconcile.RepairRedis}, whats(done.Steps))
	h.RequireBooks(id, 9)
}

// Rows that were archived are not restored: not from the stream, and not from a Redis that holds the campaign still.
func TestRepair_ArchivedRowsStayAway(t *testing.T) {
	t.Parallel()
	for _, trimmed := range []bool{false, true} {
		t.Run(fmt.Sprint("trimmed ", trimmed), func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := synced(h)
			h.Shut(id)
			archive(h, id)
			if trimmed {
				trim(h)
			}
			hset(h, h.Keys(id).State, "taken", "5")
			h.Repair(id, reconcile.RepairHow{})
			require.Zero(t, rowsOf(h, id, "1 = 1"))
			require.EqualValues(t, 10, h.Campaign(id).Claimed)
		})
	}
}

// archive moves the ten rows of a closed campaign away.
func archive(h *syncertest.Stack, id string) {
	h.T.Helper()
	h.Exec("UPDATE lots SET archived_claims = 10, archived_units = 10 WHERE id = ?", id)
	h.Exec("DELETE FROM claims WHERE campaign_id = ?", id)
}

// An operator is notified of claims that are gone only when they can be neither on their way nor archived: he would give them up.
func TestRepair_ClaimsThatMayBeElsewhereAreNotNamedAsMissing(t *testing.T) {
	t.Parallel()
	t.Run("on their way", func(t *testing.T) {
		t.Parallel()
		h := syncertest.NewStack(t)
		id := synced(h)
		h.Claim(id, syncertest.Asks("late", 2)...)
		require.NoError(t, h.Hydrator().Report(t.Context(), id, lua.Position{Epoch: 1, Seq: 12}))
		h.Exec("UPDATE lots SET claimed = 12 WHERE id = ?", id)
		require.NotContains(t, differences(h.Repair(id, reconcile.RepairHow{})), "nothing is left of them")
	})
	t.Run("archived", func(t *testing.T) {
		t.Parallel()
		h := syncertest.NewStack(t)
		id := synced(h)
		h.Shut(id)
		require.Eventually(t, func() bool { return h.Evict(residency.MinIdle) == 1 }, waitMost, waitPoll)
		archive(h, id)
		h.Exec("UPDATE lots SET claimed = 12, seen_seq = 11 WHERE id = ?", id)
		require.NotContains(t, differences(h.Repair(id, reconcile.RepairHow{})), "nothing is left of them")
	})
}

// A campaign takes no claims before claims of it are given up: a claim that comes at that moment would be given up with them.
func TestRepair_GivesClaimsUpOnlyOnceTheCampaignIsStopped(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := missingOne(h)
	observed := 0
	r := reconciler(h, h.Scripts, meddled(h, map[string]func(){observesLots: func() {
		if c := h.Campaign(id); c.Residency == models.ResidencyResident && c.Epoch == 1 {
			require.Zero(t, c.LostClaims, "while it takes claims")
			observed++
		}
	}}))
	_, err := r.Repair(t.Context(), id, reconcile.RepairHow{GiveUpClaims: true})
	require.NoError(t, err)
	require.Positive(t, observed)
	require.EqualValues(t, 1, h.Campaign(id).LostClaims)
}

// missingOne is a campaign that takes claims, and one of whose ten claims has no row, no event, and no record in Redis.
func missingOne(h *syncertest.Stack) (id string) {
	h.T.Helper()
	id = h.Create(100, nil)
	claims := h.Take(id, syncertest.Asks("u", 10)...)
	trim(h)
	h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
	record := uuid.MustParse(claims[3])
	n, err := h.Redis.HDel(h.T.Context(), h.Keys(id).Keys, string(record[:])).Result()
	require.NoError(h.T, err)
	require.EqualValues(h.T, 1, n, "redis had a record of it")
	return id
}

// A repair that may give nothing up leaves a campaign with a missing claim open.
func TestRepair_ACampaignWithAMissingClaimGoesOn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := missingOne(h)
	require.Contains(t, differences(h.Repair(id, reconcile.RepairHow{})), "nothing is left of them: seq 4;")
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
}

// A release that MySQL decided after it had redeemed a claim stands, though the event of the redeem is in the stream.
func TestRepair_AReleasedClaimIsNotRedeemedAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	claims := h.Take(id, syncertest.Asks("u", 3)...)
	_, err := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet()).Redeem(t.Context(), claims[0], "order-1")
	require.NoError(t, err)
	h.Sync()
	h.Exec("UPDATE claims SET status = 'released' WHERE id = ?", claims[0])
	h.Exec("UPDATE lots SET claimed = 2, released_claims = 1 WHERE id = ?", id)
	h.Repair(id, reconcile.RepairHow{})
	require.Equal(t, 1, rowsOf(h, id, "status = 'released'"))
	require.EqualValues(t, 2, h.Campaign(id).Claimed)
}

// Redis reports releases that MySQL lost. Of those that MySQL counts, a row is the evidence.
func TestRepair_ARowThatIsClaimedAgainIsNotReleased(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	claims := h.Take(id, syncertest.Asks("u", 3)...)
	_, err := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet()).Release(t.Context(), claims[0], "")
	require.NoError(t, err)
	h.Sync()
	h.Exec("UPDATE claims SET status = 'claimed' WHERE id = ?", claims[0])
	h.Repair(id, reconcile.RepairHow{})
	require.Zero(t, rowsOf(h, id, "status = 'released'"))
	h.RequireBooks(id, 3)
}

// lateClaim is an eleventh claim of a campaign, which Redis has and MySQL lacks.
func lateClaim(h *syncertest.Stack, id string) []models.Event {
	late := syncertest.ClaimsOf(id, 11, 1)
	late[0].ID = h.Claim(id, syncertest.Ask("late", ""))[0].Claim.ID
	late[0].UserID = "late"
	late[0].Quantity = 1
	return late
}

// Counters are recreated while flushes are held off. A flush that has started before is counted.
func TestRepair_AFlushThatIsUnderWayIsCounted(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	late := lateClaim(h, id)
	h.Exec("UPDATE lots SET claimed = 12 WHERE id = ?", id)
	flushing := make(chan *gorm.DB, 1)
	r := reconciler(h, meddled(h, map[string]func(){"xrange": func() {
		if len(flushing) > 0 {
			return
		}
		flush := h.DB.Begin()
		tx, _ := flush.Statement.ConnPool.(*sql.Tx)
		require.NoError(t, syncertest.InsertRows(t.Context(), tx, late))
		require.NoError(t, flush.Exec("UPDATE lots SET claimed = claimed + 1, synced_seq = synced_seq + 1 WHERE id = ?", id).Error)
		flushing <- flush
	}}), h.Scripts)
	repaired := make(chan error, 1)
	var done reconcile.Repaired
	go func() {
		var err error
		done, err = r.Repair(t.Context(), id, reconcile.RepairHow{})
		repaired <- err
	}()
	require.Eventually(t, func() bool {
		var waits int
		err := h.DB.Raw("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'UPDATE lots SET%'").Scan(&waits).Error
		return err == nil && len(flushing) > 0 && waits > 0
	}, waitMost, waitPoll)
	require.NoError(t, (<-flushing).Commit().Error)
	require.NoError(t, <-repaired)
	c := h.Campaign(id)
	require.Equal(t, []int64{11, 11}, []int64{c.Claimed, c.SyncedSeq})
	require.Len(t, done.Steps, 1, "at once")
}

// Counters that are recreated from rows have what waits to be added to them; it is not added again.
func TestRepair_SumsThatWaitAreCountedOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	late := lateClaim(h, id)
	flush := h.DB.Begin()
	tx, _ := flush.Statement.ConnPool.(*sql.Tx)
	require.NoError(t, syncertest.InsertRows(t.Context(), tx, late))
	require.NoError(t, flush.Commit().Error)
	h.Exec("INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at, waiting)"+
		" VALUES ('f', ?, 1, 1, 11, 11, 1, UTC_TIMESTAMP(3), 1)", id)
	h.Exec("UPDATE lots SET claimed = 12 WHERE id = ?", id)
	_, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	var waits int
	require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM stock_flushes WHERE waiting = 1").Scan(&waits).Error)
	require.Zero(t, waits)
	c := h.Campaign(id)
	require.Equal(t, []int64{11, 11}, []int64{c.Claimed, c.SyncedSeq})
}

// A comparison finds claims on their way that reach MySQL before it looks for them. The claims that are parked are among those it has.
func TestCompare_ClaimsThatArriveMeanwhileAreNotMissing(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Refusing()
	_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Total: new(int64(100))})
	require.NoError(t, err)
	users := 0
	r := reconciler(h, meddled(h, map[string]func(){
		"state": func() { users++; h.Claim(id, syncertest.Asks(fmt.Sprint("late", users), 2)...) },
		"xinfo": h.Sync,
	}), h.Scripts)
	found, err := r.Compare(t.Context(), id, reconcile.DepthUsers)
	require.NoError(t, err)
	require.Len(t, found.Differences, 1)
	require.Contains(t, found.Differences[0], "is parked")
}

// Of a closed campaign no claim notices that Redis lost the users' records. The round that compares it queues it, and the maintainer loads it again.
func TestReconciler_AClosedCampaignThatLostAKeyIsLoadedAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	h.Shut(id)
	require.NoError(t, h.Redis.Del(t.Context(), h.Keys(id).Users).Err())
	require.NotEmpty(t, h.Compare(id).Differences)
	reconciler, maintainer := h.Leader()
	_, err := reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	require.NoError(t, maintainer.Maintain(t.Context(), false))
	require.Empty(t, h.Compare(id).Differences)
	h.RequireBooks(id, 3)
}
