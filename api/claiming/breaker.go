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
	// slowCall is how long a call may take before its Redis is asked
	// whether it answers at all.
	slowCall = 250 * time.Millisecond
	// probeTimeout is how long a Redis may take for a plain read before it
	// counts as one that hangs.
	probeTimeout = 500 * time.Millisecond
	// probeEvery is the pause between two questions to a Redis that hangs.
	probeEvery = 100 * time.Millisecond
)

// errAway refuses a claim of a partition whose Redis is known to hang. It
// was not sent.
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

// breaker refuses the claims of a partition at once while its Redis hangs:
// they would wait for as long as a call may take. A read that is not
// answered either opens it, one that is answered closes it.
type breaker struct {
	states StateReader
	group  *workers.Group

	isOpen, isProbing atomic.Bool
}

// watch has the Redis of a campaign asked if what begins now takes long.
// done ends that.
func (b *breaker) watch(campaignID string) (done func() bool) {
	return time.AfterFunc(slowCall, func() { b.probe(campaignID) }).Stop
}

func (b *breaker) refuses() bool { return b.isOpen.Load() }

// probe asks the Redis of a campaign for a state, unless somebody does,
// and again until it answers.
func (b *breaker) probe(campaignID string) {
	if !b.isProbing.CompareAndSwap(false, true) {
		return
	}
	begun := b.group.Go(func() {
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
	if !begun { // the process ends
		b.isProbing.Store(false)
	}
}
