// Package pulse reports whether a process's loops still run: one
// that is up but does nothing is not healthy.
package pulse

import (
	"fmt"
	"sync"
	"time"
)

// Heartbeat tracks a process's loops. The zero value has none. A
// nil one ignores beats.
type Heartbeat struct {
	mu  sync.Mutex
	due map[string]time.Time // by loop
}

// Beat reports that a loop has just run and should run again within a time.
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

// Stuck returns an error naming a loop that is overdue by more
// than grace, or nil.
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
