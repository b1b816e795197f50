package reconcile_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
)

// syncedPackets is a campaign of 100 packets in two waves, ten of them taken and in MySQL.
func syncedPackets(h *syncertest.Stack) string {
	h.T.Helper()
	id := h.OpenPackets(syncertest.ListOf("x", 60), syncertest.ReleasedAt(syncertest.SplitOf(40, 4000), syncertest.InAnHour()))
	h.Take(id, syncertest.Asks("u", 10)...)
	return id
}

// list is the one of the packets that are there at once, of the load in force.
func list(h *syncertest.Stack, id string) string {
	h.T.Helper()
	return h.Keys(id).Packets(h.Campaign(id).Epoch, 0)
}

// wave is the list of the packets that are to come.
func wave(h *syncertest.Stack, id string) string {
	h.T.Helper()
	return h.Redis.ZRange(h.T.Context(), h.Keys(id).Waves, -1, -1).Val()[0]
}

// reload is what a syncer does with a campaign that Redis lost.
func reload(h *syncertest.Stack, id string) {
	h.T.Helper()
	h.Reload(id)
}

func del(h *syncertest.Stack, keys ...string) {
	h.T.Helper()
	n, err := h.Redis.Del(h.T.Context(), keys...).Result()
	require.NoError(h.T, err)
	require.EqualValues(h.T, len(keys), n)
}

const robOfOwner = "UPDATE packets SET claim_id = NULL, user_id = NULL WHERE campaign_id = ? AND id = 'x60'"

var packetPlants = []plant{
	{name: "nothing", spoil: func(*syncertest.Stack, string) {}, taken: 10},
	{
		name: "a packet is gone from its list", says: "redis has 49 packets without a time of release to give away, the rows are of 50",
		spoil: func(h *syncertest.Stack, id string) {
			require.NoError(h.T, h.Redis.RPop(h.T.Context(), list(h, id)).Err())
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a packet is in its list twice", says: "redis has 51 packets without a time of release to give away, the rows are of 50",
		spoil: func(h *syncertest.Stack, id string) {
			require.NoError(h.T, h.Redis.RPush(h.T.Context(), list(h, id), h.Redis.LIndex(h.T.Context(), list(h, id), 0).Val()).Err())
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a wave is gone", says: "to give away, the rows are of 40",
		spoil: func(h *syncertest.Stack, id string) { del(h, wave(h, id)) },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a wave is something else", says: "to give away, the rows are of 40",
		spoil: func(h *syncertest.Stack, id string) {
			wave := wave(h, id)
			del(h, wave)
			hset(h, wave, "a", "b")
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "the names of the lists are gone", says: "redis holds lists of packets that are in no wave",
		spoil: func(h *syncertest.Stack, id string) { del(h, h.Keys(id).Waves) },
		steps: []string{reconcile.RepairRedis, reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "the names of the lists were gone when it was loaded again", says: "redis holds lists of packets of earlier loads",
		spoil: func(h *syncertest.Stack, id string) {
			del(h, h.Keys(id).Waves)
			reload(h, id)
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a packet lost its owner", says: "1 claims have packets that are not theirs",
		spoil: func(h *syncertest.Stack, id string) { h.Exec(robOfOwner, id) },
		steps: []string{reconcile.RepairPackets}, taken: 10,
	},
	{
		name: "a packet lost its owner, and redis the campaign", says: "1 claims have packets that are not theirs",
		spoil: func(h *syncertest.Stack, id string) {
			h.Exec(robOfOwner, id)
			h.Lose(id, syncertest.WholeCampaign)
		},
		steps: []string{reconcile.RepairPackets, reconcile.RepairRedis}, taken: 10,
	},
}

func TestReconciler_EachPlantedDriftOfPacketsIsFoundAndRepairedByTheRows(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for _, p := range packetPlants {
		id := syncedPackets(h)
		requireFoundAndRepaired(h, id, p)
		h.RequireOwners(id, 11)
		require.Len(t, h.KeysOf(id), 6, "%s: state, users, keys, two lists and their names, and nothing else", p.name)
	}
}

// A row that is deleted can't be made up. It is told as long as it is missing, and its packet is not given away.
func TestReconciler_APacketWithoutARowIsNotGivenAway(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := syncedPackets(h)
	h.Exec("DELETE FROM packets WHERE campaign_id = ? AND id = 'x50'", id)
	found := h.Compare(id)
	require.Contains(t, strings.Join(found.Differences, "\n"), "campaigns.total is 100, there are 99 rows of packets")
	require.Contains(t, strings.Join(found.Differences, "\n"), "redis has 50 packets without a time of release to give away, the rows are of 49")
	done, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Contains(t, strings.Join(done.Left.Differences, "\n"), "there are 99 rows of packets")
	require.EqualValues(t, 89, h.InLists(id))
	for _, reply := range h.Claim(id, syncertest.Asks("v", 49)...) {
		require.Equal(t, models.OutcomeClaimed, reply.Outcome)
		require.NotEqual(t, "x50", reply.Claim.PacketID)
	}
	h.Sync()
	require.Empty(t, syncertest.ParkedIDs(t, h.DB))
}

func TestReconciler_APacketOfAnUnknownClaimIsTold(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := syncedPackets(h)
	h.Exec("UPDATE packets SET claim_id = 'who', user_id = 'who' WHERE campaign_id = ? AND id = 'x1'", id)
	require.Contains(t, strings.Join(h.Compare(id).Differences, "\n"), "1 packets belong to claims that have no row")
}

// Claims on their way have no owner in MySQL yet, new packets are not in Redis yet, those of parked claims are no one else's: none of
// it is a difference.
func TestReconciler_ALagOfPacketsIsNeverADifference(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := syncedPackets(h)
	h.Claim(id, syncertest.Asks("late", 7)...)
	require.Empty(t, h.Compare(id).Differences)
	_, err := syncertest.NewCampaigns(t, h.DB, h.Without("push")).AddPackets(t.Context(), id, syncertest.ListOf("y", 10))
	require.NoError(t, err)
	require.Empty(t, h.Compare(id).Differences)
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)
	h.Exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'w-3')")
	h.Take(id, syncertest.Asks("w", 5)...)
	require.Equal(t, 1, h.ParkedRows(id, "discarded_at IS NULL"))
	found := h.Compare(id)
	require.Len(t, found.Differences, 1, "%q", found.Differences)
	require.Contains(t, found.Differences[0], "is parked")
	h.Shut(id)
	h.Accept()
	h.Repair(id, reconcile.RepairHow{})
	clock := clockwork.NewFakeClock()
	finalizer := resolve.NewFinalizer(resolve.NewRelay(h.DB, h.Scripts, nil), h.Hydrator(), clock, nil)
	_, err = finalizer.Finalize(t.Context())
	require.NoError(t, err)
	clock.Advance(resolve.ReturnDelay)
	ended, err := finalizer.Finalize(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, ended)
	require.Empty(t, h.Compare(id).Differences, "what went back is not in the rows to give away")
}

// A load that brings packets takes a while; one that stands still is a difference.
func TestReconciler_ALoadIsADifferenceOnlyWhenItStandsStill(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.OpenPackets(syncertest.ListOf("x", 12*lua.PushMax))
	h.Lose(id, syncertest.WholeCampaign)
	pushed, goOn, loaded := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	slow := syncertest.Hooked(t, h.Redis, lua.Options{}, syncertest.Hooks{After: func(name string) {
		if name == "push" {
			once.Do(func() {
				close(pushed)
				<-goOn
			})
		}
	}})
	go func() {
		_, err := syncertest.NewHydrator(t, h.DB, slow).Hydrate(t.Context(), id)
		loaded <- err
	}()
	<-pushed
	var log testenv.Buffer
	r := reconcile.New(h.DB, h.Scripts, h.Hydrator(), slog.New(slog.NewTextHandler(&log, nil)), nil)
	differ, err := r.Reconcile(t.Context())
	require.NoError(t, err)
	require.Zero(t, differ)
	require.Empty(t, log.String())
	found := h.Compare(id)
	require.Empty(t, found.Differences)
	require.Nil(t, found.Drift)

	h.Exec("UPDATE lots SET residency_at = ? WHERE id = ?", time.Now().UTC().Add(-time.Hour), id)
	require.Contains(t, strings.Join(h.Compare(id).Differences, "\n"), "is loading in redis", "no one seems to be at it")
	close(goOn)
	require.NoError(t, <-loaded)
	require.Empty(t, h.Compare(id).Differences)
}

func TestReconciler_RepairsPacketsOnSQLite(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	h.DB = syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	h.Writer = syncertest.StartWriter(t, writer.Config{DB: h.DB, FlushInterval: time.Millisecond})
	id := syncedPackets(h)
	require.Empty(t, h.Compare(id).Differences)
	h.Exec(robOfOwner, id)
	h.Lose(id, func(k lua.CampaignKeys) []string { return []string{k.Waves} })
	done, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Equal(t, []string{reconcile.RepairPackets, reconcile.RepairRedis, reconcile.RepairRedis}, whats(done.Steps))
	require.Empty(t, done.Left.Differences)
	h.RequireOwners(id, 10)
}
