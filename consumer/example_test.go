package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/lua"
	"dibs/models/event"
)

// A service with its own group, and the effects of its handler's results.
func ExampleConsumer_service() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	for n, user := range []string{"ann", "nobody", "bob"} { // Dibs does this
		rdb.XAdd(context.Background(), &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{
			"_watermill_message_uuid", fmt.Sprint("claim-", n+1), "metadata", "", "payload", fmt.Sprintf(
				`{"v":1,"type":"claim.accepted","id":"claim-%d","campaign_id":"rain","user_id":%q,"quantity":1,"seq":%d,`+
					`"at":"2026-11-21T12:00:00.000Z","packet_id":"p%d","amount":250,"currency":"EUR"}`, n+1, user, n+1, n+1),
		}})
	}

	ctx, stop := context.WithCancel(context.Background())
	booked := map[string]bool{} // yours is a table with the event's id as its key
	service, err := consumer.New(consumer.Config{
		Config: redisbatch.Config{
			Client: rdb, Group: "mail", Name: "mail-1", // the name should survive a restart
			Window: 1, // one after another; leave it out to have thousands in flight
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		},
		Partitions: 1,
		// nothing applies the stream to MySQL
		// here; leave it out to get what MySQL has
		ReadAhead: true,
		Handle: func(_ context.Context, e event.Event, _ []byte) error {
			if e.Type != event.ClaimAccepted || e.Amount == nil || booked[e.ID] {
				return nil // irrelevant, or done before
			}
			if e.UserID == "nobody" {
				return consumer.Permanent(errors.New("no such user")) // parked
			}
			// after an error here it would be delivered again
			booked[e.ID] = true
			fmt.Println(e.UserID, "gets", *e.Amount, e.Currency)
			if e.ID == "claim-3" {
				stop()
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	if err := service.Run(ctx); err != nil {
		panic(err)
	}
	for p, err := range consumer.NewParkingLot(rdb, 1, "mail").All(context.Background()) {
		fmt.Println("parked:", p.EventID, p.Reason, err)
	}
	// Output:
	// ann gets 250 EUR
	// bob gets 250 EUR
	// parked: claim-2 consumer: permanent: no such user <nil>
}
