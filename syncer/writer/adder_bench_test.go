package writer

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"dibs/models"
)

// BenchmarkAdder adds claims of one campaign from handlers that run at the same time, while one goroutine empties the adder as a flush
// does, with one stripe and with one for each core. `make bench BENCH=/adder` shows ns/claim in a table.
func BenchmarkAdder(b *testing.B) {
	for _, batch := range []int{1, 16, 512} {
		for _, handlers := range []int{1, 4, 16, 32} {
			for _, stripes := range []int{1, max(2, runtime.GOMAXPROCS(0))} {
				b.Run(fmt.Sprintf("batch=%d/handlers=%d/stripes=%d", batch, handlers, stripes), func(b *testing.B) {
					benchmarkAdder(b, batch, handlers, stripes)
				})
			}
		}
	}
}

func benchmarkAdder(b *testing.B, batch, handlers, stripes int) {
	const each = 1 << 18 // claims of one iteration
	cfg := Config{Logger: slog.New(slog.DiscardHandler)}.WithDefaults()
	w := unstarted(cfg, cfg.tuning())
	w.adder = &adder{stripes: make([]stripe, stripes), cellRows: cfg.FlushSize / stripes}
	events := make([]models.RawEvent, batch)
	claims := make([]int, batch)
	for i := range events {
		claims[i] = i
		events[i].Event = models.Event{ID: "claim", CampaignID: "sale", UserID: "user", Quantity: 1, Seq: int64(i + 1), At: models.NewTime(time.Now())}
	}
	emptied := make(chan struct{})
	go func() {
		defer close(emptied)
		for range w.wake {
			for w.adder.pending.Load() >= int64(cfg.FlushSize) {
				for _, c := range w.adder.take(cfg.FlushSize) {
					w.capacity.Release(int64(len(c.rows)))
					w.adder.release(c, nil)
				}
			}
		}
	}()
	for b.Loop() {
		var running sync.WaitGroup
		for range handlers {
			running.Go(func() {
				for range each / handlers / batch {
					_, _ = w.add(b.Context(), events, claims)
				}
			})
		}
		running.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/claim")
	close(w.wake)
	<-emptied
}
