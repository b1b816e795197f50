package cmd

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"dibs/internal/build"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
)

// announceEvery is how often a process says that it runs.
const announceEvery = 2 * time.Second

// announced runs a role that the console lists until it ends.
func (s *stack) announced(ctx context.Context, role string, run func() error) error {
	ctx, stop := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	announcing.Go(func() { s.announceUntil(ctx, role) })
	defer announcing.Wait()
	defer stop()
	return run()
}

// announceUntil announces this process until ctx ends. What Redis does not take is said again.
func (s *stack) announceUntil(ctx context.Context, role string) {
	host, _ := os.Hostname() // "" where there is none
	p := lua.Process{
		ID: uuid.NewString(), Role: role, Name: s.cfg.Name, Version: build.Of().Document(), Host: host, StartedAt: models.NewTime(time.Now()),
	}
	for {
		asking, cancel := context.WithTimeout(ctx, announceEvery)
		_ = s.scripts.Announce(asking, &p)
		cancel()
		if sleep.For(ctx, announceEvery) != nil {
			break
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.scripts.Withdraw(ending, p.ID) // or it expires
}
