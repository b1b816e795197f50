package adder_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"dibs/models"
	"dibs/syncer/adder"
)

// BenchmarkAdder adds reads of 100 claims, a reader for each partition, while a flush takes all of it each millisecond: with a cell for
// each, and with one mutex for all.
func BenchmarkAdder(b *testing.B) {
	for _, partitions := range []int{1, 2, 12} {
		b.Run(fmt.Sprintf("partitions=%d/cells", partitions), func(b *testing.B) {
			a := adder.New(partitions, 1<<30, time.Now)
			turns := make([]int64, partitions)
			for p := range turns {
				turns[p] = a.Begin(p, start)
			}
			benchmark(b, partitions, func() { a.SumThenReset() }, func(r *models.StreamRead) {
				r.Turn = turns[r.Partition]
				_ = a.Add(r)
			})
		})
		b.Run(fmt.Sprintf("partitions=%d/mutex", partitions), func(b *testing.B) { // one cell for all readers
			a := adder.New(1, 1<<30, time.Now)
			turn := a.Begin(0, start)
			benchmark(b, partitions, func() { a.SumThenReset() }, func(r *models.StreamRead) {
				r.Partition = 0
				r.Turn = turn
				_ = a.Add(r)
			})
		})
	}
}

func benchmark(b *testing.B, partitions int, take func(), add func(*models.StreamRead)) {
	b.Helper()
	const each, batch = 1 << 17, 100 // claims of one iteration, and of a read
	stop := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				take()
			case <-stop:
				tick.Stop()
				return
			}
		}
	})
	for b.Loop() {
		var readers sync.WaitGroup
		for p := range partitions {
			events, upto := claims(fmt.Sprint("c", p), start, batch)
			readers.Go(func() {
				r := read(p, 0, events, upto)
				for range each / batch / partitions {
					add(r)
				}
			})
		}
		readers.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/each, "ns/claim")
	close(stop)
	flushing.Wait()
}
