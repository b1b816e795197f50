// Readstream prints every claim of one claim stream, once the group
// `my-books` has not seen it yet: the whole of a finance service but for the
// booking. Stop it with Ctrl-C; what it has not acked comes again.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := read(ctx, "127.0.0.1:6379", "dibs:{p0}:claims"); err != nil {
		log.Print(err)
	}
}

// claimEvent is as much of an event as a finance service needs.
type claimEvent struct {
	Type       string `json:"type"`
	ID         string `json:"id"` // deduplicate on this
	CampaignID string `json:"campaign_id"`
	UserID     string `json:"user_id"`
	Quantity   int64  `json:"quantity"`
	Seq        int64  `json:"seq"` // no gaps in a campaign
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
}

// readme:begin
func read(ctx context.Context, addr, stream string) error {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:                        redis.NewClient(&redis.Options{Addr: addr}),
		ConsumerGroup:                 "my-books",
		Consumer:                      "worker-1", // keep it over restarts
		DisableIndefiniteInitialBlock: true,
	}, watermill.NewStdLogger(false, false))
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, stream)
	if err != nil {
		return err
	}
	for message := range messages {
		var event claimEvent
		if err := json.Unmarshal(message.Payload, &event); err != nil {
			return err
		}
		if event.Type == "claim.accepted" { // pass over types you don't know
			// book it, once per event.ID
			fmt.Println(event.CampaignID, event.Seq, event.UserID, event.Quantity)
		}
		message.Ack() // after the booking is safe, never before
	}
	return subscriber.Close()
}

// readme:end
