package redisconn

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"

	"dibs/internal/sleep"
)

// agePause is the interval at which an embedded Redis' clock advances.
const agePause = 100 * time.Millisecond

// Embed starts a Redis in memory, whose data ends with the process. Its
// keys don't expire by themselves, so this advances its clock. Otherwise a
// lease that expired while the process was suspended would be held forever.
func Embed() (server *miniredis.Miniredis, end func(), err error) {
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
