package writer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/adder"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// The second reader of the same entries finds that the offset has
// moved. It drops its batch and starts again at the offset. Other
// partitions of its flush are written.
func TestOffset_ASecondReaderDoesNoHarm(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		syncertest.AddCampaign(t, db, "d", 1000)
		cfg := writer.Config{DB: db, Partitions: 2, FlushInterval: time.Millisecond}
		one := newFeed(t, db, startTuned(t, cfg, writer.Tuning{}), 0)
		clock := clockwork.NewFakeClock()
		w := startTuned(t, cfg, writer.Tuning{Clock: clock})
		pass := func(until func() bool) {
			t.Helper()
			require.Eventually(t, func() bool {
				clock.Advance(10 * time.Millisecond)
				return until()
			}, time.Minute, time.Millisecond)
		}
		two := newFeed(t, db, w, 0)
		beside := newFeed(t, db, w, 1)
		events := syncertest.ClaimsOf("c", 1, 20)
		others := syncertest.ClaimsOf("d", 1, 5)
		require.NoError(t, two.add(events[:7]...))
		require.NoError(t, beside.add(others...))
		one.send(events[:10]...)
		pass(beside.isApplied)
		require.Eventually(t, func() bool { return two.add(events[7:10]...) != nil }, time.Minute, time.Millisecond, "its turn is over")
		require.ErrorIs(t, two.add(events[7:10]...), adder.ErrTurn)
		two.begin()
		require.Equal(t, one.at, two.at)
		require.NoError(t, two.add(events[10:]...))
		pass(two.isApplied)
		syncertest.RequireBooks(t, db, "c", events)
		syncertest.RequireBooks(t, db, "d", others)
	})
}

func TestOffset_WhatIsReadAgainIsKnown(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		f := newFeed(t, db, w, 0)
		events := syncertest.ClaimsOf("c", 1, 30)
		f.send(events[:10]...)
		back := f.at
		f.send(events[10:20]...)
		moved, err := w.Move(t.Context(), 0, f.at, back)
		require.NoError(t, err)
		require.True(t, moved)
		positions, err := w.Positions(t.Context(), 0)
		require.NoError(t, err)
		for _, p := range positions {
			require.LessOrEqual(t, p.Read, back.Read)
		}
		f.begin()
		require.Equal(t, back, f.at)
		f.send(slices.Concat(events[25:], events[10:25], events[12:14])...)
		syncertest.RequireBooks(t, db, "c", events)
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

func TestOffset_ARestoredMySQLReadsOnFromItsOffset(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		f := newFeed(t, db, w, 0)
		events := syncertest.ClaimsOf("c", 1, 40)
		f.send(events[:10]...)
		dump := syncertest.DumpOf(t, db)
		f.send(events[10:30]...)
		for name, notices := range map[string]func() bool{
			"it reads on": func() bool { return f.add(events[30:]...) != nil },
			"the stream is idle": func() bool {
				_, err := w.Free(t.Context(), 0, f.turn)
				return errors.Is(err, adder.ErrTurn)
			},
		} {
			require.NoError(t, dump.Restore(db))
			require.Eventually(t, notices, time.Minute, 10*time.Millisecond, name)
			f.begin()
			require.EqualValues(t, 10, f.at.Read)
			f.send(events[10:]...)
			syncertest.RequireBooks(t, db, "c", events)
		}
	})
}

func TestFlush_SendsOneUpdateOfStock(t *testing.T) {
	t.Parallel()
	_, db := sqlServer(t)
	require.NoError(t, db.Exec("DELETE FROM lots").Error)
	require.NoError(t, db.Exec("DELETE FROM definitions").Error)
	sharded(t, db)
	for _, id := range []string{"a", "b"} {
		syncertest.AddCampaign(t, db, id, 1000)
	}
	w := syncertest.StartWriter(t, writer.Config{DB: db, Partitions: 3, FlushSize: 7, FlushInterval: time.Minute})
	var feeds []*feed
	for p := range 3 {
		feeds = append(feeds, newFeed(t, db, w, p))
	}
	for _, statement := range []string{"SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = 1"} {
		require.NoError(t, db.Exec(statement).Error)
	}
	require.NoError(t, feeds[0].add(syncertest.ClaimsOf("a", 1, 3)...))
	require.NoError(t, feeds[1].add(syncertest.ClaimsOf("b", 1, 2)...))
	require.NoError(t, feeds[2].add(ofShard(1, 1), ofShard(2, 1)))
	for _, f := range feeds {
		f.applied()
	}
	var updates []string
	require.NoError(t, db.Raw("SELECT argument FROM mysql.general_log WHERE argument LIKE 'UPDATE%lots%'").Scan(&updates).Error)
	require.Len(t, updates, 1, strings.Join(updates, "\n"))
	for id, n := range map[string]int64{"a": 3, "b": 2, "c": 2, "c#1": 1, "c#2": 1} {
		var synced int64
		require.NoError(t, db.Raw("SELECT synced_seq FROM lots WHERE id = ?", id).Scan(&synced).Error)
		require.Equal(t, n, synced, id)
	}
}

// A sharded campaign was deleted, and made again under its id. The streams of
// its shards are read apart.
func TestOffset_ARestoredMySQLKeepsTheLaterCampaignOfAnID(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		w := syncertest.StartWriter(t, writer.Config{DB: db, Partitions: 2, FlushInterval: time.Millisecond})
		shards := []*feed{newFeed(t, db, w, 0), newFeed(t, db, w, 1)}
		start := time.Now().UTC().Truncate(time.Millisecond)
		of := func(shard int, at time.Duration, d *models.Definition) event.Event {
			e := event.Event{
				V: 1, Type: event.CampaignDeleted, ID: uuid.NewString(), CampaignID: "c", Shard: shard, At: models.NewTime(start.Add(at)),
			}
			if d != nil {
				e.Type = event.CampaignChanged
				e.Version = d.Version
				e.Definition = d
			}
			return e
		}
		define := func(name string, version int64, made time.Duration) *models.Definition {
			return &models.Definition{
				Kind: models.KindCoupon, Name: name, Status: models.StatusOpen, Shards: 2, TimeZone: "UTC", Version: version, Changes: 1,
				CreatedAt: start.Add(made), Dealt: new(int64(4)), Total: 4,
			}
		}
		before := define("before", start.UnixMilli(), 0)
		later := define("later", 1, 2*time.Second)
		shards[0].send(of(1, 0, before), of(1, time.Second, nil), of(1, 3*time.Second, later))
		loaded := of(2, 0, before)
		loaded.Type, loaded.Epoch = event.LotLoaded, 7
		moved := of(2, 0, nil)
		moved.Type, moved.Move, moved.Quantity, moved.MadeMs = event.UnitsDebited, "m", 1, before.CreatedAt.UnixMilli()
		paused := of(2, 0, nil)
		paused.Type, paused.PauseID, paused.MadeMs = event.CampaignPaused, "p", before.CreatedAt.UnixMilli()
		for _, e := range []event.Event{
			of(2, 0, before), loaded, moved, paused, of(2, time.Second, nil), of(2, 3*time.Second, later),
		} {
			shards[1].send(e)
			var now models.Definition
			require.NoError(t, db.Take(&now).Error)
			require.Equal(t, []any{"later", later.CreatedAt, models.StatusOpen}, []any{now.Name, now.CreatedAt.UTC(), now.Status})
			var lot struct{ Epoch, Total int64 }
			require.NoError(t, db.Raw("SELECT epoch, total FROM lots WHERE id = 'c#2'").Scan(&lot).Error)
			require.Equal(t, []int64{0, 2}, []int64{lot.Epoch, lot.Total})
		}
	})
}

// A program of before changes a campaign beside this one, and does not write
// what its shards shared at first.
func TestOffset_ARestoredMySQLDealsOutWhatWasDealt(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"in one flush": true, "in two": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
				w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
				stream := newFeed(t, db, w, 0)
				made := time.Now().UTC().Truncate(time.Millisecond)
				var events []event.Event
				for version, total := range []int64{4, 6} {
					events = append(events, event.Event{
						V: 1, Type: event.CampaignChanged, ID: uuid.NewString(), CampaignID: "c", Shard: 1,
						At: models.NewTime(made), Version: int64(version + 1), Definition: &models.Definition{
							Kind: models.KindCoupon, Status: models.StatusOpen, Shards: 2, TimeZone: "UTC",
							Version: int64(version + 1), Changes: 1, CreatedAt: made, Total: total,
						},
					})
				}
				events[0].Definition.Dealt = new(int64(4))
				if together {
					stream.send(events...)
				} else {
					stream.send(events[0])
					stream.send(events[1])
				}
				var totals []int64
				require.NoError(t, db.Raw("SELECT total FROM lots ORDER BY shard").Scan(&totals).Error)
				require.Equal(t, []int64{6, 2, 2}, totals)
				var now models.Definition
				require.NoError(t, db.Take(&now).Error)
				require.Equal(t, new(int64(4)), now.Dealt)
			})
		})
	}
}
