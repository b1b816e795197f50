package claiming

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dibs/api/workers"
	"dibs/lua"
)

const (
	// slowCall is how long a call may take before its Redis is probed.
	slowCall = 250 * time.Millisecond
	// probeTimeout bounds a probe, a plain read. After it, Redis
	// counts as hanging.
	probeTimeout = 500 * time.Millisecond
	// probeEvery is the pause between probes of a hanging Redis.
	probeEvery = 100 * time.Millisecond
)

// errAway refuses a claim, unsent, because its partition's Redis hangs.
var errAway = fmt.Errorf("%w: redis hangs", lua.ErrUnavailable)

type breakers struct {
	states StateReader
	group  *workers.Group

	mu  sync.Mutex
	all map[int]*breaker
}

func (b *breakers) of(partition int) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = make(map[int]*breaker)
	}
	if b.all[partition] == nil {
		b.all[partition] = &breaker{states: b.states, group: b.group}
	}
	return b.all[partition]
}

// breaker refuses a partition's claims at once while its Redis hangs.
// Otherwise each would wait for the full call timeout. An unanswered
// probe opens it, an answered one closes it.
type breaker struct {
	states StateReader
	group  *workers.Group

	isOpen, isProbing atomic.Bool
}

// watch starts a probe if the call starting now is slow. done cancels that.
func (b *breaker) watch(campaignID string) (done func() bool) {
	return time.AfterFunc(slowCall, func() { b.probe(campaignID) }).Stop
}

func (b *breaker) refusal() error {
	if b.isOpen.Load() {
		return errAway
	}
	return nil
}

// probe reads a campaign's state until Redis answers, one probe at a time.
func (b *breaker) probe(campaignID string) {
	if !b.isProbing.CompareAndSwap(false, true) {
		return
	}
	started := b.group.Go(func() {
		defer b.isProbing.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		_, err := b.states.State(ctx, campaignID)
		hangs := errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown) || ctx.Err() != nil
		b.isOpen.Store(hangs)
		if hangs {
			time.AfterFunc(probeEvery, func() { b.probe(campaignID) })
		}
	})
	if !started { // the process is stopping
		b.isProbing.Store(false)
	}
}
