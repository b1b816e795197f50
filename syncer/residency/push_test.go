package residency_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/residency"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

func TestPush_ClaimsPacketsAndSetsTheirOwnersOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 700), syncertest.ReleasedAt(syncertest.SplitOf(600, 5000), syncertest.InAnHour()), syncertest.SplitOf(40, 1000))
	require.EqualValues(t, 1340, h.InLists(id))
	require.Equal(t, h.Campaign(id).Version, h.Campaign(id).AppliedVersion)
	replies := h.Claim(id, syncertest.Asks("u", 900)...)
	require.Equal(t, "x700", replies[0].Claim.PacketID)
	require.Equal(t, models.OutcomeClaimed, replies[739].Outcome)
	require.Equal(t, models.OutcomeNotReleased, replies[740].Outcome)
	h.Sync()
	h.RequireOwners(id, 740)
	h.AddPackets(id, syncertest.ListOf("y", 3))
	h.Claim(id, syncertest.Asks("v", 2)...)
	h.Sync()
	h.RequireOwners(id, 742)
}

// Redis forgets everything in mid-rain: a retry still gets its packet, and only packets that no one took are given away.
func TestPush_AfterALossOnlyWhatNobodyTookIsThere(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 1200), syncertest.ReleasedAt(syncertest.SplitOf(10, 100), syncertest.InAnHour()))
	reqs := syncertest.Asks("u", 300)
	first := h.Claim(id, reqs...)
	h.Sync()
	h.Lose(id, syncertest.WholeCampaign)
	require.NoError(t, h.Hydrate(id))
	require.Equal(t, first[0].Claim, h.Claim(id, reqs[0])[0].Claim)
	require.Equal(t, models.OutcomeReplayed, h.Claim(id, reqs[1])[0].Outcome)
	h.Sync()
	h.RequireOwners(id, 300)
	replies := h.Claim(id, syncertest.Asks("v", 1000)...)
	require.Equal(t, models.OutcomeClaimed, replies[899].Outcome)
	require.Equal(t, models.OutcomeNotReleased, replies[900].Outcome)
	h.Sync()
	h.RequireOwners(id, 1200)
	require.Equal(t, 0, h.Evict(time.Millisecond), "a wave is to come")
}

func TestPush_EvictedPacketsComeBack(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 20))
	h.Claim(id, syncertest.Asks("u", 5)...)
	h.Sync()
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, []string{":evicted"}, h.KeysOf(id))
	h.AddPackets(id, syncertest.ListOf("y", 5))
	require.Equal(t, models.ResidencyEvicted, h.Residency(id), "adding packets loads nothing")
	require.NoError(t, h.Hydrate(id))
	h.RequireOwners(id, 5)
	h.Claim(id, syncertest.Asks("v", 30)...)
	h.Sync()
	h.RequireOwners(id, 25)
}

// Whoever pushes dies after any call, and others push in the meantime: in the end each packet is there once.
func TestPush_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 3*lua.PushMax))
	h.Claim(id, syncertest.Asks("u", 7)...)
	h.Sync()
	for calls := 1; calls <= 3; calls++ {
		h.Lose(id, syncertest.WholeCampaign)
		seen := 0
		require.PanicsWithValue(t, syncertest.Died{}, func() {
			_, _ = residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
				if step == "pushed" {
					if seen++; seen == calls {
						panic(syncertest.Died{})
					}
				}
			})
		})
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome, "it is not open before all is there")
		var g errgroup.Group
		for range 3 {
			g.Go(func() error { return h.Hydrate(id) })
		}
		require.NoError(t, g.Wait())
		h.RequireOwners(id, 7)
	}
}

// A restock that stops half way is gone on with by the sweeper.
func TestPush_TheSweeperTellsWhatWasNotTold(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 10))
	_, err := syncertest.NewCampaigns(t, h.DB, h.Without("push")).AddPackets(t.Context(), id, syncertest.ListOf("y", 10))
	require.NoError(t, err, "the packets are in mysql")
	require.EqualValues(t, 10, h.InLists(id))
	require.EqualValues(t, 20, h.Campaign(id).Remaining, "never below what redis says")
	n, err := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.RequireOwners(id, 0)
}

// Claims whose packet is another's, none, gone back or of another amount are parked, each with its reason, and their neighbours go in.
func TestOwners_AnomaliesAreParked(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		campaigns := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		syncertest.AddPacketCampaign(t, campaigns, "p")
		_, err := campaigns.AddPackets(t.Context(), "p", syncertest.ListOf("x", 10)) // x10 holds 1, x9 2 …
		require.NoError(t, err)
		require.NoError(t, db.Exec("UPDATE packets SET returned_at = '2026-11-21 00:00:00.000' WHERE id = 'x1'").Error)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 100, FlushInterval: 20 * time.Millisecond})
		events := syncertest.ClaimsOf("p", 1, 8)
		for i := range events {
			events[i].Quantity, events[i].PacketID, events[i].Amount = 1, fmt.Sprint("x", 10-i), new(int64(i)+1)
		}
		bad := map[string]string{}
		spoil := func(i int, id string, amount int64, why string) {
			events[i].PacketID, events[i].Amount = id, &amount
			bad[events[i].ID] = why
		}
		spoil(3, "none", 1, noPacket("none"))
		spoil(4, "x1", 10, noPacket("x1"))
		spoil(5, "x5", 7, noPacket("x5"))
		spoil(7, "x10", 1, noPacket("x10"))
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[:7]))
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events), "delivered again, and one more")
		var parked []models.ParkedEvent
		require.NoError(t, db.Find(&parked).Error)
		require.Len(t, parked, len(bad))
		for i := range parked {
			require.Equal(t, bad[parked[i].ID], parked[i].Reason)
		}
		good := slices.DeleteFunc(slices.Clone(events), func(e models.Event) bool { return bad[e.ID] != "" })
		syncertest.RequireBooks(t, db, "p", good)
		owned := 0
		for _, p := range syncertest.PacketsOf(t, db, "p") {
			if p.ClaimID != nil {
				owned++
			}
		}
		require.Equal(t, len(good), owned)
	})
}

func noPacket(id string) string {
	return "packet " + id + " is of another claim, returned to its sender, holds another amount, or does not exist"
}
