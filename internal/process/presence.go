package process

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"dibs/internal/build"
	"dibs/internal/lease"
	"dibs/internal/softstate"
	"dibs/models"
)

const (
	announceEvery = 2 * time.Second // interval at which a process reports that it runs
	compareEvery  = time.Minute     // interval of searching processes with another durability
)

// announced runs a role that the console lists while it runs. Failed
// reports are repeated.
func (s *Stack) announced(ctx context.Context, role string, run func(context.Context) error) error {
	host, _ := os.Hostname() // "" if unknown
	p := softstate.Process{
		ID: uuid.NewString(), Role: role, Name: s.Config.Name, Version: build.Of().Document(), Host: host, StartedAt: models.NewTime(time.Now()),
	}
	if s.TakesClaims {
		p.Durability = s.Config.Durability
	}
	compare := rate.Sometimes{Interval: compareEvery}
	announce := func(ctx context.Context) error {
		asking, cancel := context.WithTimeout(ctx, announceEvery)
		defer cancel()
		_ = s.shared.Announce(asking, &p)
		compare.Do(func() { s.compareDurability(asking, &p) })
		return nil
	}
	return lease.Renewed(ctx, announceEvery, announce, func(ctx context.Context) error { return s.shared.Withdraw(ctx, p.ID) }, run)
}

// compareDurability warns of processes with another durability: callers
// couldn't know what an accepted claim means.
func (s *Stack) compareDurability(ctx context.Context, p *softstate.Process) {
	if p.Durability == "" {
		return
	}
	all, _ := s.shared.Processes(ctx) // the next check would find them
	for i := range all {
		other := &all[i]
		if other.Durability != "" && other.Durability != p.Durability && other.Silent < 2*announceEvery {
			s.Logger.Warn("processes answer claims by different durabilities: set DIBS_DURABILITY to the same everywhere",
				"durability", p.Durability.String(), "other", other.Name, "other_host", other.Host, "other_durability", other.Durability.String())
		}
	}
}
