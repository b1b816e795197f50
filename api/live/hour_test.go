package live_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/apitest"
	"dibs/internal/caller"
)

// counted is an answer of which only the events are counted.
type counted struct {
	header http.Header
	events atomic.Int64
}

func (c *counted) Header() http.Header { return c.header }

func (c *counted) WriteHeader(int) {}

func (c *counted) Write(b []byte) (int, error) {
	c.events.Add(int64(bytes.Count(b, []byte("data: "))))
	return len(b), nil
}

func (c *counted) Flush() {}

// TestAnHourOfWatchersLeavesNothing: an hour of a sampler's clock, a rush that goes on, 200 watchers. Each is told every second, and what
// is in memory afterwards is what was there at the start. A test of the console does the same in real time, see DIBS_SOAK.
func TestAnHourOfWatchersLeavesNothing(t *testing.T) { //nolint:paralleltest // it weighs its own process
	const hour = time.Hour
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, apitest.Coupon("a", 1_000_000))
		ctx, leave := context.WithCancel(context.Background())
		var watching sync.WaitGroup
		watchers := make([]*counted, 200)
		for i := range watchers {
			w := &counted{header: http.Header{}}
			watchers[i] = w
			req := as(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), caller.Anonymous)
			req.SetPathValue("id", "a")
			watching.Go(func() {
				if i%2 == 0 {
					r.GetWatch(w, req)
				} else {
					r.GetWatchAll(w, req)
				}
			})
		}
		const warm = 11 * time.Minute // the past holds ten
		pass(warm)
		heap, goroutines := weigh()
		pass(hour)
		synctest.Wait()
		heapAfter, goroutinesAfter := weigh()
		require.Equal(t, goroutines, goroutinesAfter)
		require.Less(t, heapAfter-heap, int64(100<<10), "bytes after %s", hour)
		for _, w := range watchers {
			require.InDelta(t, (hour + warm).Seconds(), w.events.Load(), 2)
		}
		leave()
		watching.Wait()
	})
}

// weigh is what is in memory after a collection.
func weigh() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC() // what pools held over the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
}
