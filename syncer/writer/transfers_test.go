package writer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"
)

// sharded is campaign c of 100 units in two shards, of which each has 25, in load 1 of every lot.
func sharded(t *testing.T, db *gorm.DB) {
	t.Helper()
	c := syncertest.CampaignOf("c", 100)
	c.Shards = 2
	_, _, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, db.Exec("UPDATE lots SET epoch = 1 WHERE shard > 0").Error)
}

// moved is an event of load 1: the lot debited units for a peer, or was credited them.
func moved(kind models.EventType, lot, peer int, tseq, units, cumulative int64) models.Event {
	return models.Event{
		V: models.EventVersion, Type: kind, ID: uuid.Must(uuid.NewV7()).String(), CampaignID: "c", Shard: lot, Peer: peer, Quantity: units,
		Cumulative: cumulative, TSeq: tseq, Epoch: 1, At: models.NewTime(time.Now()),
	}
}

// figures are total, tseq, synced_seq and claimed of each lot, and its rows of stock_moves.
func figures(t *testing.T, db *gorm.DB) map[int]string {
	t.Helper()
	var lots []models.Campaign
	require.NoError(t, db.Where("campaign_id = 'c' AND shard > 0").Find(&lots).Error)
	all := make(map[int]string)
	for i := range lots {
		_, shard := models.SplitShardID(lots[i].ID)
		all[shard] = fmt.Sprintf("%d units, %d transfers, %d claims of %d:", lots[i].Total, lots[i].TSeq, lots[i].SyncedSeq, lots[i].Claimed)
	}
	var rows []struct {
		Shard, Peer             int
		TSeq, Units, Cumulative int64
		Kind                    string
	}
	query := "SELECT shard, peer, tseq AS t_seq, units, cumulative, SUBSTR(kind, 7, 1) AS kind FROM stock_moves WHERE campaign_id = 'c' ORDER BY shard, tseq"
	require.NoError(t, db.Raw(query).Scan(&rows).Error)
	for _, r := range rows {
		all[r.Shard] += fmt.Sprintf(" %d:%s %d %d/%d", r.TSeq, r.Kind, r.Peer, r.Units, r.Cumulative)
	}
	return all
}

const debited, credited = models.EventUnitsDebited, models.EventUnitsCredited

// A debit and a credit each become a row of their lot, and count in its transfers and units, beside claims and alone.
func TestTransfers_AreRowsAndCount(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		begin := map[int]string{
			1: "25 units, 1 transfers, 0 claims of 0: 1:c 65 25/25", 2: "25 units, 1 transfers, 0 claims of 0: 1:c 65 25/25",
			65: "50 units, 3 transfers, 0 claims of 0: 1:c 0 100/100 2:d 1 25/25 3:d 2 25/25",
		}
		require.Equal(t, begin, figures(t, db))
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 100, FlushInterval: 10 * time.Millisecond})
		claim := ofShard(1, 1)
		claim.Quantity = 3
		events := []models.Event{claim, moved(debited, 65, 1, 4, 10, 35), moved(credited, 1, 65, 2, 10, 35), moved(debited, 1, 2, 3, 4, 4)}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
		after := map[int]string{
			1: "31 units, 3 transfers, 1 claims of 3: 1:c 65 25/25 2:c 65 10/35 3:d 2 4/4", 2: begin[2],
			65: "40 units, 4 transfers, 0 claims of 0: 1:c 0 100/100 2:d 1 25/25 3:d 2 25/25 4:d 1 10/35",
		}
		require.Equal(t, after, figures(t, db))

		for _, again := range events { // each alone, and then all beside a new one
			require.NoError(t, syncertest.Submit(t.Context(), w, again))
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, append(events, moved(credited, 2, 1, 2, 4, 4))))
		after[2] = "29 units, 2 transfers, 0 claims of 0: 1:c 65 25/25 2:c 1 4/4"
		require.Equal(t, after, figures(t, db), "a replay counts once")
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

// The ids of packets are kept in the order of the event.
func TestTransfers_NamePackets(t *testing.T) {
	t.Parallel()
	db := fileStore(t)
	sharded(t, db)
	w := syncertest.StartWriter(t, writer.Config{DB: db})
	e := moved(debited, 65, 1, 4, 3, 28)
	e.IDs = []string{"p3", "p1", "p2"}
	require.NoError(t, syncertest.Submit(t.Context(), w, e))
	var packets string
	require.NoError(t, db.Raw("SELECT packets FROM stock_moves WHERE shard = 65 AND tseq = 4").Scan(&packets).Error)
	require.Equal(t, "p3,p1,p2", packets)
}

// An event of another load than MySQL knows is dropped: the load has taken what it said. So is one whose number is taken, and one of a
// lot that is not there. They hold up nothing else, and are not parked.
func TestTransfers_OfAnotherLoadAreDropped(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		require.NoError(t, db.Exec("UPDATE lots SET epoch = 2 WHERE id = 'c#1'").Error)
		before := figures(t, db)
		late := moved(credited, 1, 65, 2, 10, 35) // of load 1
		early := moved(credited, 1, 65, 2, 10, 35)
		early.Epoch = 3
		taken := moved(debited, 65, 2, 3, 7, 32)
		unknown := moved(debited, 9, 1, 1, 1, 1)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 100, FlushInterval: 10 * time.Millisecond})
		for _, one := range []models.Event{late, early, taken, unknown} {
			require.NoError(t, syncertest.Submit(t.Context(), w, one))
		}
		require.Equal(t, before, figures(t, db), "each alone")
		good := moved(credited, 2, 65, 2, 5, 30)
		claim := ofShard(2, 1)
		claim.Quantity = 2
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, []models.Event{late, good, early, claim, taken, unknown}))
		before[2] = "30 units, 2 transfers, 1 claims of 2: 1:c 65 25/25 2:c 65 5/30"
		require.Equal(t, before, figures(t, db), "beside others")
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}
