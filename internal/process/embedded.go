package process

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"

	"dibs/internal/sleep"
)

// agePause lies between two checks of the time that has passed for an embedded
// Redis.
const agePause = 100 * time.Millisecond

// embedRedis starts a Redis in memory: its data ends with the process. Its keys
// expire by the clock, which by itself they don't: a lease that ran out while
// the process stood still would be held for good.
func embedRedis() (server *miniredis.Miniredis, end func(), err error) {
	server, err = miniredis.Run()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for last := time.Now(); sleep.For(ctx, agePause) == nil; {
			now := time.Now()
			server.FastForward(now.Sub(last))
			last = now
		}
	}()
	return server, func() {
		cancel()
		<-ended
		server.Close()
	}, nil
}
