// Package breaker refuses claims at once while their Redis hangs. Otherwise
// each would wait for the full timeout of a call.
package breaker

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

// States reads a campaign's state in Redis.
type States interface {
	State(ctx context.Context, campaignID string) (lua.State, error)
}

// Breakers has a Breaker for each partition.
type Breakers struct {
	states States
	group  *workers.Group

	mu  sync.Mutex
	all map[int]*Breaker
}

// New returns breakers, closed. Probes run in group.
func New(states States, group *workers.Group) *Breakers {
	return &Breakers{states: states, group: group, all: make(map[int]*Breaker)}
}

// Of is a partition's breaker.
func (b *Breakers) Of(partition int) *Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[partition] == nil {
		b.all[partition] = &Breaker{states: b.states, group: b.group}
	}
	return b.all[partition]
}

// Breaker refuses a partition's claims at once while its Redis hangs.
// An unanswered probe opens it, an answered one closes it.
type Breaker struct {
	states States
	group  *workers.Group

	isOpen, isProbing atomic.Bool
}

// Watch starts a probe if the call starting now is slow. done cancels that.
func (b *Breaker) Watch(campaignID string) (done func() bool) {
	return time.AfterFunc(slowCall, func() { b.probe(campaignID) }).Stop
}

// Refusal is the error of a claim that is not sent, or nil.
func (b *Breaker) Refusal() error {
	if b.isOpen.Load() {
		return errAway
	}
	return nil
}

// probe reads a campaign's state until Redis answers, one probe at a time.
func (b *Breaker) probe(campaignID string) {
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
