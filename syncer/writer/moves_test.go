package writer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/writer"
)

func sharded(t *testing.T, db *gorm.DB) {
	t.Helper()
	c := syncertest.CampaignOf("c", 100)
	c.Shards = 2
	_, _, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), c)
	require.NoError(t, err)
}

// half is half of a move: a shard debited
// units for a peer, or was credited with them.
func half(kind event.Type, move string, shard, peer int, units int64) event.Event {
	e := event.Event{
		V: event.Version, Type: kind, ID: move, CampaignID: "c", Shard: shard, Peer: peer, Move: move, Quantity: units, Epoch: 1,
		At: models.NewTime(time.Now()),
	}
	if kind == credited {
		e.ID += ":credited"
	}
	return e
}

const debited, credited = event.UnitsDebited, event.UnitsCredited

// figures are the total, claims and residency of each shard, and the moves.
func figures(t *testing.T, db *gorm.DB) (all []string) {
	t.Helper()
	var lots []models.Campaign
	require.NoError(t, db.Where("campaign_id = 'c' AND shard > 0").Order("shard").Find(&lots).Error)
	for i := range lots {
		all = append(all, fmt.Sprintf("%d units, %d claimed, %s", lots[i].Total, lots[i].Claimed, lots[i].Residency))
	}
	var rows []struct {
		ID                        string
		FromShard, ToShard, Units int64
		Done                      bool
	}
	query := "SELECT id, from_shard, to_shard, units, credited_at IS NOT NULL AS done FROM stock_moves ORDER BY id"
	require.NoError(t, db.Raw(query).Scan(&rows).Error)
	for _, r := range rows {
		all = append(all, fmt.Sprintf("%s: %d from %d to %d, done %t", r.ID, r.Units, r.FromShard, r.ToShard, r.Done))
	}
	return all
}

// A move is a row: its debit makes it and its credit ends it. Each
// counts once in the units of its shard, with claims or alone.
func TestMoves_AreRowsAndCountOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 100, FlushInterval: 10 * time.Millisecond})
		claim := ofShard(1, 1)
		claim.Quantity = 3
		events := []event.Event{claim, half(debited, "m1", 1, 2, 10), half(debited, "m2", 2, 0, 7)}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
		require.Equal(t, []string{
			"40 units, 3 claimed, none", "43 units, 0 claimed, none",
			"m1: 10 from 1 to 2, done false", "m2: 7 from 2 to 0, done true",
		}, figures(t, db))
		events = append(events, half(credited, "m1", 2, 1, 10))
		for range 2 { // a stream that is read again
			require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
			for _, again := range events {
				require.NoError(t, syncertest.Submit(t.Context(), w, again))
			}
		}
		require.Equal(t, []string{
			"40 units, 3 claimed, none", "53 units, 0 claimed, none",
			"m1: 10 from 1 to 2, done true", "m2: 7 from 2 to 0, done true",
		}, figures(t, db))
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

// A credit proves a debit that MySQL lacks: the giver no longer has the
// units, and stays live. The debit then changes nothing.
func TestMoves_ACreditProvesItsDebit(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		require.NoError(t, db.Exec("UPDATE lots SET residency = 'resident' WHERE campaign_id = 'c'").Error)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		require.NoError(t, syncertest.Submit(t.Context(), w, half(credited, "m1", 2, 1, 10)))
		want := []string{"40 units, 0 claimed, resident", "60 units, 0 claimed, resident", "m1: 10 from 1 to 2, done true"}
		require.Equal(t, want, figures(t, db))
		require.NoError(t, syncertest.Submit(t.Context(), w, half(debited, "m1", 1, 2, 10)))
		require.Equal(t, want, figures(t, db))
		require.NoError(t, syncertest.Submit(t.Context(), w, half(credited, "m2", 2, 0, 5)), "of a raise that MySQL forgot")
		require.Equal(t, "65 units, 0 claimed, resident", figures(t, db)[1])
	})
}

// A restored MySQL reads the streams of the shards in any order. In the
// end it has all units, each once.
func TestMoves_InAnyOrderNoUnitIsMade(t *testing.T) {
	t.Parallel()
	streams := [][]event.Event{
		{half(credited, "m1", 1, 2, 50), half(debited, "m2", 1, 2, 80), half(credited, "m3", 1, 2, 75)},
		{half(debited, "m1", 2, 1, 50), half(credited, "m2", 2, 1, 80), half(debited, "m3", 2, 1, 75)},
	}
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		for _, order := range [][]int{{0, 0, 0, 1, 1, 1}, {1, 1, 1, 0, 0, 0}, {1, 1, 0, 0, 0, 1}, {0, 0, 1, 1, 1, 0}, {1, 0, 1, 0, 1, 0}} {
			for _, flush := range []int{1, len(order)} {
				for table := range syncertest.Dumped {
					require.NoError(t, db.Exec("DELETE FROM "+table).Error)
				}
				sharded(t, db)
				w, err := writer.New(writer.Config{DB: db, FlushInterval: 10 * time.Millisecond, Logger: syncertest.Quiet()})
				require.NoError(t, err)
				next := [2]int{}
				var read []event.Event
				for _, stream := range order {
					read = append(read, streams[stream][next[stream]])
					next[stream]++
				}
				for some := range slices.Chunk(read, flush) {
					require.NoError(t, syncertest.SubmitAll(t.Context(), w, some))
				}
				require.NoError(t, w.Close(t.Context()))
				require.Equal(t, []string{
					"95 units, 0 claimed, none", "5 units, 0 claimed, none",
					"m1: 50 from 2 to 1, done true", "m2: 80 from 1 to 2, done true", "m3: 75 from 2 to 1, done true",
				}, figures(t, db), "%d by %d", order, flush)
			}
		}
	})
}

// A locked shard delays only its own figures. After the lock the sums
// are added, also those of a process that died.
func TestMoves_OfALockedShardWait(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	sharded(t, db)
	free := lockRow(t, db, "c#1")
	w, err := writer.New(writer.Config{DB: db, FlushInterval: time.Millisecond, Logger: syncertest.Quiet()})
	require.NoError(t, err)
	f := newFeed(t, db, w, 0)
	f.send(half(debited, "m1", 1, 2, 10), half(credited, "m2", 2, 1, 5), ofShard(1, 1), ofShard(2, 1), ofShard(2, 2))
	require.Equal(t, []string{
		"50 units, 0 claimed, none", "55 units, 5 claimed, none",
		"m1: 10 from 1 to 2, done false", "m2: 5 from 1 to 2, done true",
	}, figures(t, db))
	dies, die := context.WithCancel(t.Context())
	die()
	_ = w.Close(dies)
	free()
	syncertest.StartWriter(t, writer.Config{DB: db})
	require.Eventually(t, func() bool { return waiting(t, db, "c") == 0 }, time.Minute, 10*time.Millisecond)
	for id, n := range map[string]int64{"c": 3, "c#1": 1, "c#2": 2} {
		var synced int64
		require.NoError(t, db.Raw("SELECT synced_seq FROM lots WHERE id = ?", id).Scan(&synced).Error)
		require.Equal(t, n, synced, id)
	}
	require.Contains(t, figures(t, db)[0], "35 units")
}
