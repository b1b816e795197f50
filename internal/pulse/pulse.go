// Package pulse reports whether the loops of a process still turn: a process
// that is up and does nothing is not healthy.
package pulse

import (
	"fmt"
	"sync"
	"time"
)

// Heartbeat is the loops of a process. The zero value has none; a nil one takes
// beats and keeps nothing.
type Heartbeat struct {
	mu  sync.Mutex
	due map[string]time.Time // by loop
}

// Beat says that a loop has just turned, and turns again within a time if all
// is well.
func (p *Heartbeat) Beat(loop string, within time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due == nil {
		p.due = make(map[string]time.Time)
	}
	p.due[loop] = time.Now().Add(within)
}

// Stuck names a loop that should have turned, and for longer than a grace; nil:
// none.
func (p *Heartbeat) Stuck(grace time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for loop, due := range p.due {
		if late := time.Since(due); late > grace {
			return fmt.Errorf("pulse: %s is stuck: it should have turned %s ago", loop, late.Round(time.Second))
		}
	}
	return nil
}
