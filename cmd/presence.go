package cmd

import (
	"context"
	"os"
	"time"

	"github.com/google/uuid"

	"dibs/internal/build"
	"dibs/lua"
	"dibs/models"
)

// announceEvery is how often a process says that it runs.
const announceEvery = 2 * time.Second

// announced runs a role that the console lists until it ends. What Redis does not take is said again.
func (s *stack) announced(ctx context.Context, role string, run func(context.Context) error) error {
	host, _ := os.Hostname() // "" where there is none
	p := lua.Process{
		ID: uuid.NewString(), Role: role, Name: s.cfg.Name, Version: build.Of().Document(), Host: host, StartedAt: models.NewTime(time.Now()),
	}
	announce := func(ctx context.Context) error {
		asking, cancel := context.WithTimeout(ctx, announceEvery)
		defer cancel()
		_ = s.scripts.Announce(asking, &p)
		return nil
	}
	return whileRenewed(ctx, announceEvery, announce, func(ctx context.Context) error { return s.scripts.Withdraw(ctx, p.ID) }, run)
}
