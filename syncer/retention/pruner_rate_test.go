package retention_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/retention"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
)

// TestPrunerRate makes the figure of docs/dba.md: how many rows of stock_flushes a second the pruner removes while 500 campaigns are in
// each flush. It must be twice what is written.
//
//	DIBS_TEST_CAPACITY=1 go test ./syncer/retention -run PrunerRate -v
//
//nolint:paralleltest // it measures
func TestPrunerRate(t *testing.T) {
	if os.Getenv("DIBS_TEST_CAPACITY") == "" {
		t.Skip("makes figures, and wants a quiet machine")
	}
	db := syncertest.OpenServer(t)
	const held, old, lasts = 500, 100_000, 20 * time.Second
	for i := range held {
		syncertest.AddCampaign(t, db, fmt.Sprint("c", i), 1_000_000)
	}
	started := time.Now().UTC()
	batch := make([]models.StockFlush, 0, old)
	for i := range old {
		at := started.Add(-8*24*time.Hour + time.Duration(i)*time.Millisecond)
		batch = append(batch, models.StockFlush{
			ID: idAt(at), CampaignID: fmt.Sprint("c", i%held), Units: 1, Claims: 1, FirstSeq: 1, LastSeq: 1, FlushedAt: at,
		})
	}
	require.NoError(t, db.CreateInBatches(batch, 2000).Error)
	w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: writer.DefaultFlushInterval})
	var flushes sync.WaitGroup
	flushes.Go(func() {
		for seq := int64(1); time.Since(started) < lasts; seq++ {
			events := make([]models.Event, 0, held)
			for i := range held {
				events = append(events, syncertest.ClaimsOf(fmt.Sprint("c", i), seq, 1)...)
			}
			if err := syncertest.SubmitAll(t.Context(), w, events); err != nil {
				t.Error(err)
			}
		}
	})
	started = time.Now().UTC()
	pruned, err := retention.NewPruner(db).Prune(t.Context()) // one round
	took := time.Since(started)
	require.NoError(t, err)
	flushes.Wait()
	var rows int64
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM stock_flushes WHERE flushed_at > ?", started.Add(-time.Minute)).Scan(&rows).Error)
	average := float64(pruned) / took.Seconds() * 2 / 3 // it works for 40 s of each minute
	written := float64(rows) / time.Since(started).Seconds()
	t.Logf("%d rows pruned in %s, so %.0f a second on average; beside it %.0f rows a second were written", pruned, took.Round(time.Millisecond), average, written)
	require.GreaterOrEqual(t, average, 2*written)
}
