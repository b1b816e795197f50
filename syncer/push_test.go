package syncer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

func TestPush_ClaimsPacketsAndSetsTheirOwnersOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 700), releasedAt(splitOf(600, 5000), inAnHour()), splitOf(40, 1000))
	require.EqualValues(t, 1340, h.inLists(id))
	require.Equal(t, h.campaign(id).Version, h.campaign(id).AppliedVersion)
	replies := h.claim(id, asks("u", 900)...)
	require.Equal(t, "x700", replies[0].Claim.PacketID)
	require.Equal(t, models.OutcomeClaimed, replies[739].Outcome)
	require.Equal(t, models.OutcomeNotReleased, replies[740].Outcome)
	h.sync()
	h.requireOwners(id, 740)
	h.addPackets(id, listOf("y", 3))
	h.claim(id, asks("v", 2)...)
	h.sync()
	h.requireOwners(id, 742)
}

// Redis forgets everything in mid-rain: a retry still gets its packet, and only packets that nobody took are given away.
func TestPush_AfterALossOnlyWhatNobodyTookIsThere(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 1200), releasedAt(splitOf(10, 100), inAnHour()))
	reqs := asks("u", 300)
	first := h.claim(id, reqs...)
	h.sync()
	h.lose(id, wholeCampaign)
	require.NoError(t, h.hydrate(id))
	require.Equal(t, first[0].Claim, h.claim(id, reqs[0])[0].Claim)
	require.Equal(t, models.OutcomeReplayed, h.claim(id, reqs[1])[0].Outcome)
	h.sync()
	h.requireOwners(id, 300)
	replies := h.claim(id, asks("v", 1000)...)
	require.Equal(t, models.OutcomeClaimed, replies[899].Outcome)
	require.Equal(t, models.OutcomeNotReleased, replies[900].Outcome)
	h.sync()
	h.requireOwners(id, 1200)
	require.Equal(t, 0, h.evict(time.Millisecond), "a wave is to come")
}

func TestPush_EvictedPacketsComeBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 20))
	h.claim(id, asks("u", 5)...)
	h.sync()
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{}, append([]string{}, h.keysOf(id)...))
	h.addPackets(id, listOf("y", 5))
	require.Equal(t, models.ResidencyEvicted, h.residency(id), "adding packets loads nothing")
	require.NoError(t, h.hydrate(id))
	h.requireOwners(id, 5)
	h.claim(id, asks("v", 30)...)
	h.sync()
	h.requireOwners(id, 25)
}

// Whoever pushes dies after any call, and others push meanwhile: in the end each packet is there once.
func TestPush_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 3*lua.PushMax))
	h.claim(id, asks("u", 7)...)
	h.sync()
	for calls := 1; calls <= 3; calls++ {
		h.lose(id, wholeCampaign)
		seen := 0
		require.PanicsWithValue(t, died{}, func() {
			_, _ = syncer.HydrateWithStep(t.Context(), h.hydrator(), id, func(step string) {
				if step == "pushed" {
					if seen++; seen == calls {
						panic(died{})
					}
				}
			})
		})
		require.Equal(t, models.OutcomeAbsent, h.claim(id, ask("w", ""))[0].Outcome, "it is not open before all is there")
		var g errgroup.Group
		for range 3 {
			g.Go(func() error { return h.hydrate(id) })
		}
		require.NoError(t, g.Wait())
		h.requireOwners(id, 7)
	}
}

// A restock that stops half way is gone on with by the sweeper.
func TestPush_TheSweeperTellsWhatWasNotTold(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 10))
	faulty := &pushFails{Scripts: h.scripts}
	_, err := newCampaigns(t, h.db, faulty).AddPackets(t.Context(), id, listOf("y", 10))
	require.NoError(t, err, "the packets are in mysql")
	require.EqualValues(t, 10, h.inLists(id))
	require.EqualValues(t, 20, h.campaign(id).Remaining, "never below what redis says")
	n, err := newSweeper(t, h.db, h.scripts).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.requireOwners(id, 0)
}

// Claims whose packet is another's, none, gone back or of another amount are parked, each with its reason, and their neighbours go in.
func TestOwners_AnomaliesAreParked(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		campaigns := newCampaigns(t, db, openScripts(t))
		addPacketCampaign(t, campaigns, "p")
		_, err := campaigns.AddPackets(t.Context(), "p", listOf("x", 10)) // x10 holds 1, x9 2 …
		require.NoError(t, err)
		require.NoError(t, db.Exec("UPDATE packets SET returned_at = '2026-11-21 00:00:00.000' WHERE id = 'x1'").Error)
		w := startWriter(t, syncer.WriterConfig{DB: db, FlushSize: 100, FlushInterval: 20 * time.Millisecond})
		events := claimsOf("p", 1, 8)
		for i := range events {
			events[i].Quantity, events[i].PacketID, events[i].Amount = 1, fmt.Sprint("x", 10-i), new(int64(i)+1)
		}
		bad := map[string]string{}
		spoil := func(i int, id string, amount int64, why string) {
			events[i].PacketID, events[i].Amount = id, &amount
			bad[events[i].ID] = why
		}
		spoil(3, "none", 1, "the campaign has no packet none")
		spoil(4, "x1", 10, "packet x1 went back to the sender")
		spoil(5, "x5", 7, "packet x5 holds another amount, 6")
		spoil(7, "x10", 1, fmt.Sprintf("claim %s has packet x10", events[0].ID))
		require.NoError(t, submitAll(t.Context(), w, events[:7]))
		require.NoError(t, submitAll(t.Context(), w, events), "delivered again, and one more")
		var parked []models.ParkedEvent
		require.NoError(t, db.Find(&parked).Error)
		require.Len(t, parked, len(bad))
		for i := range parked {
			require.Equal(t, bad[parked[i].ID], parked[i].Reason)
		}
		good := slices.DeleteFunc(slices.Clone(events), func(e models.Event) bool { return bad[e.ID] != "" })
		requireBooks(t, db, "p", good)
		owned := 0
		for _, p := range packetsOf(t, db, "p") {
			if p.ClaimID != nil {
				owned++
			}
		}
		require.Equal(t, len(good), owned)
	})
}
