package retention_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"dibs/internal/audit"
	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"

	"github.com/stretchr/testify/require"
)

func closedCampaign(h *syncertest.Stack) (id string, claims []string) {
	t := h.T
	t.Helper()
	id = h.Create(100, func(c *models.Campaign) { c.PerUser = 2 })
	claims = h.Take(id, syncertest.Asks("u", 30)...)
	resolver := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet())
	for _, claim := range claims[3:5] {
		_, err := resolver.Release(t.Context(), claim, "")
		require.NoError(t, err)
	}
	_, err := resolver.Redeem(t.Context(), claims[7], "o")
	require.NoError(t, err)
	h.Shut(id)
	h.Sync()
	h.Exec("UPDATE definitions SET closed_told_at = created_at WHERE campaign_id = ?", id)
	return id, claims
}

// archiver has small pages, and evicts as the command does.
func archiver(h *syncertest.Stack) *retention.Archiver {
	evictor := lots.NewKeeper(h.Loader(), lots.MinIdle, nil)
	return retention.ArchiverWithPage(retention.NewArchiver(h.DB, func(ctx context.Context, id string) error {
		h.Sync()
		_, err := evictor.EvictOne(ctx, id)
		h.Sync() // as the consumer does
		return err
	}, func(int) {}), 7)
}

func inAMinute() time.Time { return time.Now().Add(time.Minute) }

func requireAgrees(h *syncertest.Stack, id string) {
	h.T.Helper()
	h.Sync()
	require.Empty(h.T, h.Compare(id).Differences)
}

func archived(h *syncertest.Stack) (ids []string) {
	h.T.Helper()
	require.NoError(h.T, h.DB.Raw("SELECT id FROM claims_archive ORDER BY seq").Scan(&ids).Error)
	return ids
}

func TestArchiver_MovesTheClaimsOfAClosedCampaignAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, claims := closedCampaign(h)
	before := h.Campaign(id)
	n, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 30, n)
	require.Equal(t, claims, archived(h))
	after := h.Campaign(id)
	require.Equal(t, []int64{before.Claimed, before.SyncedSeq, before.Remaining, before.ReleasedClaims},
		[]int64{after.Claimed, after.SyncedSeq, after.Remaining, after.ReleasedClaims})
	require.Equal(t, []int64{30, 28, 30, 2}, []int64{after.ArchivedClaims, after.ArchivedUnits, after.ArchivedSold, after.ArchivedReleased})
	require.Empty(t, h.Repair(id, false).Steps)
	require.NoError(t, h.Load(id), "someone asks for it")
	requireAgrees(h, id)
	require.Equal(t, models.OutcomeClosed, h.Claim(id, syncertest.Ask("u-1", ""))[0].Outcome)
	n, err = archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.Zero(t, n)
	log, err := audit.NewLog(h.DB).List(t.Context(), models.AuditQuery{CampaignID: id, Limit: 100})
	require.NoError(t, err)
	log = slices.DeleteFunc(log, func(e models.AuditEntry) bool { return e.Action != models.AuditClaimsArchived })
	require.Len(t, log, 1, "one of the run that moved claims, however many pages it had")
	require.Contains(t, string(log[0].After), "claimed_before")
}

// After Redis came back older, two claims share the seq at which a page ends.
func TestArchiver_MovesClaimsOfOneSeq(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("u", 6)...)
	before := syncertest.DumpRedis(t, h.Redis)
	h.Take(id, syncertest.Ask("lost", ""))
	before.Restore(t, h.Redis)
	h.Take(id, syncertest.Ask("again", ""))
	h.Reload(id)
	h.Shut(id)
	h.Sync()
	h.Exec("UPDATE definitions SET closed_told_at = created_at WHERE campaign_id = ?", id)
	n, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 8, n)
	require.Len(t, archived(h), 8)
	requireAgrees(h, id)
}

// Decisions that a restored MySQL has yet to read again find no archived claim.
func TestArchiver_WaitsForWhatARestoredMySQLForgot(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, claims := closedCampaign(h)
	evictor := lots.NewKeeper(h.Loader(), lots.MinIdle, nil)
	evict := func(ctx context.Context, id string) error {
		_, err := evictor.EvictOne(ctx, id)
		return err
	}
	require.NoError(t, evict(t.Context(), id))
	h.Sync()
	dump := syncertest.DumpOf(t, h.DB)
	resolver := resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet())
	_, err := resolver.Redeem(t.Context(), claims[9], "later")
	require.NoError(t, err)
	h.Sync()
	require.NoError(t, dump.Restore(h.DB))
	_, err = retention.NewArchiver(h.DB, evict, func(int) {}).Archive(t.Context(), id, inAMinute())
	require.ErrorIs(t, err, lots.ErrAway)
	require.Empty(t, archived(h))
	_, err = archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	var status models.ClaimStatus
	require.NoError(t, h.DB.Raw("SELECT status FROM claims_archive WHERE id = ?", claims[9]).Scan(&status).Error)
	require.Equal(t, models.ClaimRedeemed, status)
}

func TestArchiver_MovesTheClaimsOfAllShards(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, func(c *models.Campaign) { c.Shards = 3 })
	for shard, users := range map[int]int{1: 9, 3: 8} {
		require.NoError(t, h.Load(models.ShardID(id, shard)))
		h.Take(models.ShardID(id, shard), syncertest.Asks("u", users)...)
	}
	h.Sync()
	closed := models.StatusClosed
	_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Status: &closed})
	require.NoError(t, err)
	h.Exec("UPDATE definitions SET closed_told_at = created_at WHERE campaign_id = ?", id)
	before := h.Campaign(id)
	h.Exec("INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES ('parked', ?, '', '', ?)",
		models.ShardID(id, 3), time.Now().UTC())
	_, err = archiver(h).Archive(t.Context(), id, inAMinute())
	require.ErrorContains(t, err, "has 1 parked events")
	h.Exec("DELETE FROM parked_events")

	n, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 17, n)
	require.Len(t, archived(h), 17)
	after := h.Campaign(id)
	require.Equal(t, []int64{before.Claimed, before.SyncedSeq, before.Remaining}, []int64{after.Claimed, after.SyncedSeq, after.Remaining})
	for shard, claims := range map[int]int64{1: 9, 2: 0, 3: 8} {
		require.Equal(t, claims, h.Campaign(models.ShardID(id, shard)).ArchivedClaims)
	}
	requireAgrees(h, id)
}

// The stream is read again from its start: archived claims are known,
// also to a repair of wrong counters.
func TestArchiver_WhatIsInTheArchiveIsKnown(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, _ := closedCampaign(h)
	_, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	other := h.Create(10, nil)
	require.Len(t, h.Claim(other, syncertest.Asks("o", 3)...), 3)
	was := h.Campaign(id)
	_, at, err := h.Writer.Begin(t.Context(), 0)
	require.NoError(t, err)
	moved, err := h.Writer.Move(t.Context(), 0, at, event.NoOffset())
	require.NoError(t, err)
	require.True(t, moved)
	h.Sync()
	is := h.Campaign(id)
	is.UpdatedAt, is.ResidencyAt = was.UpdatedAt, was.ResidencyAt
	require.Equal(t, was, is)
	require.Empty(t, syncertest.ParkedIDs(t, h.DB))
	require.EqualValues(t, 3, h.Campaign(other).Claimed)
	requireAgrees(h, id)

	h.Exec("UPDATE lots SET claimed = 3, synced_seq = 3, released_claims = 0 WHERE id = ?", id)
	h.Sync() // with fewer claims than were evicted MySQL may have been rolled back
	h.Repair(id, false)
	is = h.Campaign(id)
	require.Equal(t, []int64{was.Claimed, was.Remaining, was.ReleasedClaims}, []int64{is.Claimed, is.Remaining, is.ReleasedClaims})
	require.GreaterOrEqual(t, is.SyncedSeq, int64(30))
	requireAgrees(h, id)
}

func TestArchiver_TakesOnlyWhatIsOldAndSettledOfWhatIsClosed(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	a := archiver(h)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	_, err := a.Archive(t.Context(), id, inAMinute())
	require.ErrorIs(t, err, retention.ErrNotArchivable)
	require.ErrorContains(t, err, "is open")
	h.Shut(id)
	_, err = a.Archive(t.Context(), id, inAMinute())
	require.ErrorContains(t, err, "its end is not written yet")
	h.Exec("UPDATE definitions SET closed_told_at = created_at")
	n, err := a.Archive(t.Context(), id, time.Now().Add(-time.Minute))
	require.NoError(t, err)
	require.Zero(t, n, "too young")
	_, err = a.Archive(t.Context(), "nothing", inAMinute())
	require.ErrorIs(t, err, models.ErrNotFound)

	held := h.Create(10, func(c *models.Campaign) { c.HoldForMs = time.Hour.Milliseconds() })
	claims := h.Take(held, syncertest.Asks("h", 3)...)
	_, err = resolve.NewResolver(h.DB, resolve.NewRelay(h.DB, h.Scripts, nil), syncertest.Quiet()).Redeem(t.Context(), claims[1], "o")
	require.NoError(t, err)
	h.Shut(held)
	h.Exec("UPDATE definitions SET closed_told_at = created_at")
	n, err = a.Archive(t.Context(), held, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "two holds are open")
	requireAgrees(h, held)
}

func TestArchiver_ALoadMeanwhileIsRespected(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, _ := closedCampaign(h)
	loaded := false
	a := retention.ArchiverWithStep(archiver(h), func(step string) {
		if step == "moved" && !loaded {
			loaded = true
			require.NoError(t, h.Load(id))
			h.Sync()
		}
	})
	n, err := a.Archive(t.Context(), id, inAMinute())
	require.ErrorIs(t, err, retention.ErrNotArchivable)
	require.ErrorContains(t, err, "was loaded into redis in the meantime")
	require.EqualValues(t, 7, n)
	requireAgrees(h, id)
	n, err = a.Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 23, n)
	requireAgrees(h, id)
}

// Redis lost a claim, and gets it back: an operator promotes the old primary.
func TestArchiver_ALostClaimThatComesBackGetsItsRow(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 4)...)
	older := syncertest.DumpRedis(t, h.Redis)
	_, seen := h.ClaimAfter(id, lua.Position{}, syncertest.Ask("lost", ""))
	newer := syncertest.DumpRedis(t, h.Redis)
	older.Restore(t, h.Redis)
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: seen.Position}))
	h.Reload(id)
	require.EqualValues(t, 1, h.Campaign(id).LostUnits)
	h.Shut(id)
	h.Sync()
	h.Exec("UPDATE definitions SET closed_told_at = created_at WHERE campaign_id = ?", id)
	_, err := archiver(h).Archive(t.Context(), id, inAMinute())
	newer.Restore(t, h.Redis)
	h.Sync()
	require.EqualValues(t, 5, h.Campaign(id).SyncedSeq)
	require.ErrorIs(t, err, retention.ErrNotArchivable)
	h.Reload(id)
	require.Zero(t, h.Campaign(id).LostUnits)
	n, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	requireAgrees(h, id)
}

// A DBA moved the archive: nothing shows which claims are lost. Finance
// would take back what archived ones were paid.
func TestArchiver_GivingUpNeedsTheArchive(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, _ := closedCampaign(h)
	_, err := archiver(h).Archive(t.Context(), id, inAMinute())
	require.NoError(t, err)
	require.NoError(t, h.Loader().Report(t.Context(), map[string]lua.Position{id: {Epoch: 1, Seq: 31, Units: 31}}))
	h.Reload(id)
	require.EqualValues(t, 1, h.Campaign(id).LostUnits)
	h.Exec("CREATE TABLE moved AS SELECT * FROM claims_archive")
	h.Exec("DELETE FROM claims_archive")
	_, err = h.Reconciler().Repair(t.Context(), id, true)
	require.ErrorContains(t, err, "claims_archive has 0 of 30 claims")
	require.EqualValues(t, 1, h.Campaign(id).LostUnits)
	h.Exec("INSERT INTO claims_archive SELECT * FROM moved")
	h.Repair(id, true)
	var payload string
	require.NoError(t, h.DB.Raw("SELECT payload FROM outbox").Scan(&payload).Error)
	require.Contains(t, payload, `"seqs":[[31,31]]`)
}
