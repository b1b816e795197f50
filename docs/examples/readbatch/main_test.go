package main

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	ctx, stop := context.WithCancel(context.Background())
	var last string
	for _, payload := range []string{`{"v":1,"type":"claim.accepted","seq":1}`, `{"v":1,"type":"claim.accepted","seq":2}`} {
		last = rdb.XAdd(ctx, &redis.XAddArgs{Stream: "claims", Values: []any{"_watermill_message_uuid", "x", "metadata", "", "payload", payload}}).Val()
	}
	go func() {
		defer stop()
		for range 1000 {
			<-time.After(10 * time.Millisecond)
			groups, err := rdb.XInfoGroups(ctx, "claims").Result()
			if err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].LastDeliveredID == last {
				return // both are acked
			}
		}
	}()
	if err := read(ctx, server.Addr(), "claims"); err != nil {
		panic(err)
	}
	// Output:
	// {"v":1,"type":"claim.accepted","seq":1}
	// {"v":1,"type":"claim.accepted","seq":2}
}
