// Readbatch books the claims of one claim stream a batch at a time: what a
// read brings is one transaction. Stop it with Ctrl-C; what it has not acked
// comes again.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/consumer/redisbatch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := read(ctx, "127.0.0.1:6379", "dibs:{p0}:claims"); err != nil {
		log.Print(err)
	}
}

// readme:begin
func read(ctx context.Context, addr, stream string) error {
	subscriber, err := redisbatch.New(redisbatch.Config{
		Client: redis.NewClient(&redis.Options{Addr: addr}), Group: "mail",
		Name:   "worker-1", // keep it over restarts
		Logger: slog.Default(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, stream)
	if err != nil {
		return err
	}
	for message := range messages { // one for each read
		entries, err := redisbatch.Unmarshal(message.Payload)
		if err != nil {
			return err
		}
		for _, entry := range entries { // book them in one transaction, once per id of their events
			fmt.Println(entry.Field("payload"))
		}
		message.Ack() // after the commit, never before; Nack brings them again
	}
	return subscriber.Close()
}

// readme:end
