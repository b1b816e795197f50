package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// nothing is a sink that accepts all at once.
type nothing struct {
	left atomic.Int64
	all  chan struct{}
}

func (n *nothing) add(read *models.StreamRead) {
	if n.left.Add(int64(-len(read.Events))) == 0 {
		close(n.all)
	}
}

func (n *nothing) handle(context.Context, models.Event, []byte) error {
	if n.left.Add(-1) == 0 {
		close(n.all)
	}
	return nil
}

// BenchmarkConsumer measures what reading, decoding and acknowledging cost in this process, for MySQL and for a handler, both of
// which do nothing.
func BenchmarkConsumer(b *testing.B) {
	for _, mode := range []string{"applier", "handler"} {
		b.Run(mode, func(b *testing.B) {
			rdb := testenv.Redis(b).Client()
			for from := 0; from < b.N; from += 1000 {
				_, err := rdb.Pipelined(b.Context(), func(p redis.Pipeliner) error {
					for n := from; n < min(from+1000, b.N); n++ {
						p.XAdd(b.Context(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{
							"_watermill_message_uuid", fmt.Sprintf("0199c0de-7a3e-7bbb-8c1d-%012d", n), "metadata", "",
							"payload", fmt.Sprintf(benchPayload, n, n, n+1)}})
					}
					return nil
				})
				require.NoError(b, err)
			}
			none := &nothing{all: make(chan struct{})}
			none.left.Store(int64(b.N))
			c, err := newBench(rdb, none, mode)
			require.NoError(b, err)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			before := cpu()
			b.ReportAllocs()
			b.ResetTimer()
			go func() { done <- c.Run(ctx) }()
			<-none.all
			b.StopTimer()
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N)/1000, "µs-CPU/event")
			cancel()
			require.NoError(b, <-done)
		})
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func newBench(rdb redis.UniversalClient, none *nothing, mode string) (interface {
	Run(ctx context.Context) error
}, error) {
	if mode == "applier" {
		return consumer.NewApplier(consumer.ApplierConfig{
			Client: rdb, Name: "one", Log: &memoryLog{added: none.add}, Logger: quiet(), Registerer: prometheus.NewRegistry(),
		})
	}
	return consumer.New(consumer.Config{Handle: none.handle, ReadAhead: true, Config: redisbatch.Config{
		Client: rdb, Group: "bench", Name: "one", Logger: quiet(), Registerer: prometheus.NewRegistry(),
	}})
}
