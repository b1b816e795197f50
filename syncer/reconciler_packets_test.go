package syncer_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

// syncedPackets is a campaign of 100 packets in two waves, ten of them taken and in MySQL.
func (h *house) syncedPackets() string {
	h.t.Helper()
	id := h.openPackets(listOf("x", 60), releasedAt(splitOf(40, 4000), inAnHour()))
	h.take(id, asks("u", 10)...)
	return id
}

// list is the one of the packets that are there at once, of the load in force.
func (h *house) list(id string) string {
	h.t.Helper()
	return h.keys(id).Packets(h.campaign(id).Epoch, 0)
}

// wave is the list of the packets that are to come.
func (h *house) wave(id string) string {
	h.t.Helper()
	return h.rdb.ZRange(h.t.Context(), h.keys(id).Waves, -1, -1).Val()[0]
}

// reload is what a syncer does with a campaign that Redis lost.
func (h *house) reload(id string) {
	h.t.Helper()
	_, err := h.hydrator().Rebuild(h.t.Context(), id, true)
	require.NoError(h.t, err)
}

func (h *house) del(keys ...string) {
	h.t.Helper()
	n, err := h.rdb.Del(h.t.Context(), keys...).Result()
	require.NoError(h.t, err)
	require.EqualValues(h.t, len(keys), n)
}

const robOfOwner = "UPDATE packets SET claim_id = NULL, user_id = NULL WHERE campaign_id = ? AND id = 'x60'"

var packetPlants = []plant{
	{name: "nothing", spoil: func(*house, string) {}, taken: 10},
	{
		name: "a packet is gone from its list", says: "redis has 49 packets without a time of release to give away, the rows are of 50",
		spoil: func(h *house, id string) { require.NoError(h.t, h.rdb.RPop(h.t.Context(), h.list(id)).Err()) },
		steps: []string{syncer.RepairRedis}, taken: 10,
	},
	{
		name: "a packet is in its list twice", says: "redis has 51 packets without a time of release to give away, the rows are of 50",
		spoil: func(h *house, id string) {
			require.NoError(h.t, h.rdb.RPush(h.t.Context(), h.list(id), h.rdb.LIndex(h.t.Context(), h.list(id), 0).Val()).Err())
		},
		steps: []string{syncer.RepairRedis}, taken: 10,
	},
	{
		name: "a wave is gone", says: "to give away, the rows are of 40",
		spoil: func(h *house, id string) { h.del(h.wave(id)) },
		steps: []string{syncer.RepairRedis}, taken: 10,
	},
	{
		name: "a wave is something else", says: "to give away, the rows are of 40",
		spoil: func(h *house, id string) {
			wave := h.wave(id)
			h.del(wave)
			h.hset(wave, "a", "b")
		},
		steps: []string{syncer.RepairRedis}, taken: 10,
	},
	{
		name: "the names of the lists are gone", says: "redis holds lists of packets that are in no wave",
		spoil: func(h *house, id string) { h.del(h.keys(id).Waves) },
		steps: []string{syncer.RepairRedis, syncer.RepairRedis}, taken: 10,
	},
	{
		name: "the names of the lists were gone when it was loaded anew", says: "redis holds lists of packets of earlier loads",
		spoil: func(h *house, id string) {
			h.del(h.keys(id).Waves)
			h.reload(id)
		},
		steps: []string{syncer.RepairRedis}, taken: 10,
	},
	{
		name: "a packet lost its owner", says: "1 claims have packets that are not theirs",
		spoil: func(h *house, id string) { h.exec(robOfOwner, id) },
		steps: []string{syncer.RepairPackets}, taken: 10,
	},
	{
		name: "a packet lost its owner, and redis the campaign", says: "1 claims have packets that are not theirs",
		spoil: func(h *house, id string) {
			h.exec(robOfOwner, id)
			h.lose(id, wholeCampaign)
		},
		steps: []string{syncer.RepairPackets, syncer.RepairRedis}, taken: 10,
	},
}

func TestReconciler_EachPlantedDriftOfPacketsIsFoundAndRepairedByTheRows(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, p := range packetPlants {
		id := h.syncedPackets()
		h.requireFoundAndRepaired(id, p)
		h.requireOwners(id, 11)
		require.Len(t, h.keysOf(id), 6, "%s: state, users, keys, two lists and their names, and nothing else", p.name)
	}
}

// A row that is deleted can't be made up. It is told as long as it is missing, and its packet is not given away.
func TestReconciler_APacketWithoutARowIsNotGivenAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.syncedPackets()
	h.exec("DELETE FROM packets WHERE campaign_id = ? AND id = 'x50'", id)
	found := h.compare(id)
	require.Contains(t, strings.Join(found.Differences, "\n"), "campaigns.total is 100, there are 99 rows of packets")
	require.Contains(t, strings.Join(found.Differences, "\n"), "redis has 50 packets without a time of release to give away, the rows are of 49")
	done, err := h.reconciler(nil).Repair(t.Context(), id, syncer.RepairHow{})
	require.NoError(t, err)
	require.Contains(t, strings.Join(done.Left.Differences, "\n"), "there are 99 rows of packets")
	require.EqualValues(t, 89, h.inLists(id))
	for _, reply := range h.claim(id, asks("v", 49)...) {
		require.Equal(t, models.OutcomeClaimed, reply.Outcome)
		require.NotEqual(t, "x50", reply.Claim.PacketID)
	}
	h.sync()
	require.Empty(t, parkedIDs(t, h.db))
}

func TestReconciler_APacketOfAnUnknownClaimIsTold(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.syncedPackets()
	h.exec("UPDATE packets SET claim_id = 'who', user_id = 'who' WHERE campaign_id = ? AND id = 'x1'", id)
	require.Contains(t, strings.Join(h.compare(id).Differences, "\n"), "1 packets belong to claims that have no row")
}

// Claims on their way have no owner in MySQL yet, new packets are not in Redis yet, those of parked claims are nobody else's: none of
// it is a difference.
func TestReconciler_ALagOfPacketsIsNeverADifference(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.syncedPackets()
	h.claim(id, asks("late", 7)...)
	require.Empty(t, h.compare(id).Differences)
	_, err := newCampaigns(t, h.db, &pushFails{Scripts: h.scripts}).AddPackets(t.Context(), id, listOf("y", 10))
	require.NoError(t, err)
	require.Empty(t, h.compare(id).Differences)
	h.sync()
	require.Empty(t, h.compare(id).Differences)
	h.exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'w-3')")
	h.take(id, asks("w", 5)...)
	require.Equal(t, 1, h.parkedRows(id, "discarded_at IS NULL"))
	found := h.compare(id)
	require.Len(t, found.Differences, 1, "%q", found.Differences)
	require.Contains(t, found.Differences[0], "is parked")
	h.shut(id)
	h.accept()
	h.repair(id, syncer.RepairHow{})
	clock := clockwork.NewFakeClock()
	relay := newRelay(t, syncer.RelayConfig{DB: h.db, Scripts: h.scripts})
	finalizer, err := syncer.NewCloser(syncer.CloserConfig{
		DB: h.db, Scripts: h.scripts, Hydrator: h.hydrator(), Relay: relay, Logger: quiet(), Clock: clock,
	})
	require.NoError(t, err)
	_, err = finalizer.Close(t.Context())
	require.NoError(t, err)
	clock.Advance(syncer.RestForDefault)
	ended, err := finalizer.Close(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, ended)
	require.Empty(t, h.compare(id).Differences, "what went back is not in the rows to give away")
}

// onState is a Redis whose states are read after something else happened.
type onState struct {
	*lua.Scripts

	before func()
}

func (s *onState) State(ctx context.Context, id string) (lua.State, error) {
	s.before()
	return s.Scripts.State(ctx, id)
}

// afterPush is a Redis that does something after each call that brings packets.
type afterPush struct {
	*lua.Scripts

	after func()
}

func (s *afterPush) Push(ctx context.Context, id string, p *lua.Push) (int64, error) {
	defer s.after()
	return s.Scripts.Push(ctx, id, p)
}

// A load that brings packets takes a while; one that stands still is a difference.
func TestReconciler_ALoadThatGoesOnIsNotADifference(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.openPackets(listOf("x", 12*lua.PushMax))
	h.lose(id, wholeCampaign)
	pushed, goOn, over, loaded := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := newHydrator(t, h.db, &afterPush{Scripts: h.scripts, after: func() {
			select {
			case pushed <- struct{}{}:
			case <-over:
			}
			select {
			case <-goOn:
			case <-over:
			}
		}}).Hydrate(t.Context(), id)
		loaded <- err
	}()
	<-pushed
	require.Contains(t, strings.Join(h.compare(id).Differences, "\n"), "is loading in redis", "nobody seems to be at it")
	r := h.reconciler(func(cfg *syncer.ReconcilerConfig) {
		cfg.Scripts = &onState{Scripts: h.scripts, before: func() { goOn <- struct{}{}; <-pushed }}
	})
	found, err := r.Compare(t.Context(), id, syncer.DepthUsers)
	require.NoError(t, err)
	require.Empty(t, found.Differences)
	require.Nil(t, found.Drift)
	close(over)
	require.NoError(t, <-loaded)
	require.Empty(t, h.compare(id).Differences)
}

func TestReconciler_RepairsPacketsOnSQLite(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.db = openStore(t, syncer.StoreConfig{Path: filepath.Join(t.TempDir(), "dibs.db")})
	h.writer = startWriter(t, syncer.WriterConfig{DB: h.db, FlushInterval: time.Millisecond})
	id := h.syncedPackets()
	require.Empty(t, h.compare(id).Differences)
	h.exec(robOfOwner, id)
	h.lose(id, func(k lua.CampaignKeys) []string { return []string{k.Waves} })
	done, err := h.reconciler(nil).Repair(t.Context(), id, syncer.RepairHow{})
	require.NoError(t, err)
	require.Equal(t, []string{syncer.RepairPackets, syncer.RepairRedis, syncer.RepairRedis}, whats(done.Steps))
	require.Empty(t, done.Left.Differences)
	h.requireOwners(id, 10)
}
