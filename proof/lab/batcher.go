package lab

import (
	"context"
	"errors"

	"dibs/lua"
)

// errStopped says that the batcher was closed.
var errStopped = errors.New("lab: stopped")

// batcher lets callers share script calls, as the API's coalescer does: those that come while a call is under way have the
// next one together.
type batcher struct {
	claim func(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, error)
	calls chan call
	stop  context.CancelFunc
	ended chan struct{}
}

type call struct {
	req    lua.ClaimRequest
	answer chan<- answer
}

type answer struct {
	reply lua.ClaimReply
	err   error
}

func newBatcher(claim func(context.Context, []lua.ClaimRequest) ([]lua.ClaimReply, error)) *batcher {
	ctx, stop := context.WithCancel(context.Background())
	b := &batcher{claim: claim, calls: make(chan call, lua.ClaimsMax), stop: stop, ended: make(chan struct{})}
	go b.run(ctx)
	return b
}

func (b *batcher) close() {
	b.stop()
	<-b.ended
}

func (b *batcher) run(ctx context.Context) {
	defer close(b.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-b.calls:
			b.send(ctx, b.others([]call{first}))
		}
	}
}

// others adds who is waiting already.
func (b *batcher) others(calls []call) []call {
	for len(calls) < lua.ClaimsMax {
		select {
		case next := <-b.calls:
			calls = append(calls, next)
		default:
			return calls
		}
	}
	return calls
}

func (b *batcher) send(ctx context.Context, calls []call) {
	reqs := make([]lua.ClaimRequest, len(calls))
	for i := range calls {
		reqs[i] = calls[i].req
	}
	replies, err := b.claim(ctx, reqs)
	for i := range calls {
		if err != nil {
			calls[i].answer <- answer{err: err}
			continue
		}
		calls[i].answer <- answer{reply: replies[i]}
	}
}

// ask has one claim made with others.
func (b *batcher) ask(ctx context.Context, req lua.ClaimRequest) (lua.ClaimReply, error) {
	answered := make(chan answer, 1)
	select {
	case b.calls <- call{req, answered}:
	case <-b.ended:
		return lua.ClaimReply{}, errStopped
	case <-ctx.Done():
		return lua.ClaimReply{}, context.Cause(ctx)
	}
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-b.ended:
		return lua.ClaimReply{}, errStopped
	case <-ctx.Done():
		return lua.ClaimReply{}, context.Cause(ctx)
	}
}
