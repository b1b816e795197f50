package writer_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

const (
	benchSubmitters = 4096
	benchCampaign   = "hot"
	benchTotal      = 1_000_000_000
)

// BenchmarkWriter measures claims a second through Submit, and what a claim costs in memory.
func BenchmarkWriter(b *testing.B) {
	db := syncertest.OpenServer(b)
	syncertest.AddCampaign(b, db, benchCampaign, benchTotal)
	events := syncertest.ClaimsOf(benchCampaign, 1, int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	took := submitted(b, db, events)
	b.ReportMetric(float64(len(events))/took.Seconds(), "claims/s")
}

// BenchmarkWriterRatios puts the writer beside the raw insert of the same rows and beside one transaction a claim, in one
// run on one server: go test -run - -bench Ratios -benchtime 1x ./syncer/writer.
func BenchmarkWriterRatios(b *testing.B) {
	const many, few = 200_000, 4_000
	for range b.N {
		raw := rate(b, many, syncertest.RawInsert)
		ours := rate(b, many, submitted)
		single := rate(b, few, oneByOne)
		b.ReportMetric(raw, "raw/s")
		b.ReportMetric(ours, "writer/s")
		b.ReportMetric(single, "single/s")
		b.ReportMetric(ours/raw, "of-raw")
		b.ReportMetric(ours/single, "x-single")
	}
}

func rate(b *testing.B, n int64, run func(b *testing.B, db *gorm.DB, events []models.Event) time.Duration) float64 {
	b.Helper()
	db := syncertest.OpenServer(b)
	syncertest.AddCampaign(b, db, benchCampaign, benchTotal)
	events := syncertest.ClaimsOf(benchCampaign, 1, n)
	took := run(b, db, events)
	require.Equal(b, n, syncertest.BooksOf(b, db, benchCampaign).Rows)
	return float64(n) / took.Seconds()
}

// submitted submits events to a writer, many at a time.
func submitted(b *testing.B, db *gorm.DB, events []models.Event) time.Duration {
	b.Helper()
	w := syncertest.StartWriter(b, writer.Config{DB: db})
	started := time.Now()
	eachAtOnce(b, benchSubmitters, events, func(e *models.Event) error { return syncertest.Submit(b.Context(), w, *e) })
	return time.Since(started)
}

// oneByOne is a transaction a claim, with an UPDATE each, over 16 connections.
func oneByOne(b *testing.B, db *gorm.DB, events []models.Event) time.Duration {
	b.Helper()
	pool, err := db.DB()
	require.NoError(b, err)
	started := time.Now()
	eachAtOnce(b, 16, events, func(e *models.Event) error {
		syncertest.InTx(b, pool, func(ctx context.Context, tx *sql.Tx) error {
			if err := syncertest.InsertRows(ctx, tx, []models.Event{*e}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE lots SET claimed = claimed + ?,"+
				" synced_seq = synced_seq + 1 WHERE id = ?", e.Quantity, e.CampaignID)
			return err
		})
		return nil
	})
	return time.Since(started)
}

// eachAtOnce runs do for all events, n at a time.
func eachAtOnce(b *testing.B, n int, events []models.Event, do func(e *models.Event) error) {
	b.Helper()
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(events)); i = next.Add(1) - 1 {
				if do(&events[i]) != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(b, failed.Load())
}
