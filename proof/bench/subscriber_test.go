package bench_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"
)

// benchSubscriber writes claims to MySQL through watermill's
// Router, with one handler for both subscribers: package
// redisbatch and the stock one. The handler returns, and the
// message is acknowledged, once its claim is committed.
func benchSubscriber(b *testing.B, s *sheet) {
	r := newBroker(b)
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b)}
	log := slog.New(slog.DiscardHandler)
	ours := func(group string) (message.Subscriber, error) {
		return redisbatch.New(redisbatch.Config{
			Client: r.rdb, Group: group, Name: "one", Logger: log, Registerer: prometheus.NewRegistry(), Window: 4 * writer.DefaultFlushSize,
		})
	}
	stock := func(group string) (message.Subscriber, error) {
		return redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: lent{r.rdb}, ConsumerGroup: group, Consumer: "one", DisableIndefiniteInitialBlock: true,
		}, watermill.NopLogger{})
	}
	s.takeTurns([]func(){
		func() { s.routed(b, r, st, "redisbatch", amount(100_000), ours, decodeBatch) },
		func() { s.routed(b, r, st, "stock subscriber", amount(5_000), stock, decodeOne) },
	})
	s.ratio(b, "redisbatch / stock subscriber", "redisbatch", "stock subscriber", 10)
	s.note("One handler, which reads the event. From the first read to the last acknowledgement.")
}

// lent keeps the stock subscriber from closing its client.
type lent struct{ redis.UniversalClient }

// Close does nothing.
func (lent) Close() error { return nil }

// routed fills a stream and times a Router until a handler has
// read every claim.
func (s *sheet) routed(
	b *testing.B, r *broker, st *store, name string, claims int,
	subscriber func(group string) (message.Subscriber, error), decode func(payload []byte) (int64, error),
) {
	b.Helper()
	m := r.campaign(b, plenty)
	st.empty(b, m)
	r.fill(b, m, "user-1", claims, true)
	sub, err := subscriber(name[:5])
	require.NoError(b, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(claims))
	router.AddConsumerHandler("bench", lua.StreamKey(0), sub, func(msg *message.Message) error {
		done, err := decode(msg.Payload)
		if err == nil && left.Add(-done) == 0 {
			time.AfterFunc(time.Millisecond, cancel)
		}
		return err
	})
	before := timesOf(b, r, st)
	started := time.Now()
	require.NoError(b, router.Run(ctx))
	s.add(name, "claims/s", float64(claims)/time.Since(started).Seconds())
	s.add(name+": CPU in Go", "µs/claim", perClaim(timesOf(b, r, st).since(before).here, int64(claims)))
	r.forget(b, m)
}

// decodeOne reads the event of a message, and returns how many it has.
func decodeOne(payload []byte) (int64, error) {
	_, err := models.DecodeEvent(payload)
	return 1, err
}

// decodeBatch does so with a message of package redisbatch.
func decodeBatch(payload []byte) (int64, error) {
	entries, err := redisbatch.Unmarshal(payload)
	for i := range entries {
		_, failed := models.DecodeEvent([]byte(entries[i].Field("payload")))
		err = errors.Join(err, failed)
	}
	return int64(len(entries)), err
}
