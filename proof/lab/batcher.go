package lab

import (
	"context"
	"sync"

	"dibs/lua"
)

// batcher shares calls of the claim script, as the API's
// coalescer does: claims made during a call share the next one.
type batcher struct {
	claim func(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, error)

	mu      sync.Mutex
	waiting []waiter
	busy    bool // a call is in progress
}

type waiter struct {
	req    lua.ClaimRequest
	result chan<- verdict
}

type verdict struct {
	reply lua.ClaimReply
	err   error
}

// ask makes one claim in a shared call.
func (b *batcher) ask(ctx context.Context, req lua.ClaimRequest) (lua.ClaimReply, error) {
	result := make(chan verdict, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, waiter{req, result})
	if !b.busy {
		b.busy = true
		go b.call() //nolint:gosec // for all that wait, not for this caller
	}
	b.mu.Unlock()
	select {
	case v := <-result:
		return v.reply, v.err
	case <-ctx.Done():
		return lua.ClaimReply{}, context.Cause(ctx)
	}
}

// call makes calls until no claim waits.
func (b *batcher) call() {
	for {
		b.mu.Lock()
		all := b.waiting[:min(len(b.waiting), lua.ClaimsMax)]
		b.waiting = b.waiting[len(all):]
		b.busy = len(all) > 0
		b.mu.Unlock()
		if len(all) == 0 {
			return
		}
		reqs := make([]lua.ClaimRequest, len(all))
		for i := range all {
			reqs[i] = all[i].req
		}
		replies, err := b.claim(context.Background(), reqs)
		for i := range all {
			v := verdict{err: err}
			if err == nil {
				v.reply = replies[i]
			}
			all[i].result <- v
		}
	}
}
