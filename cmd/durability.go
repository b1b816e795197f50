package cmd

import (
	"context"
	"fmt"
	"maps"
	"time"

	"dibs/internal/config"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// errEmbedded refuses what needs a Redis with a disk.
var errEmbedded = fmt.Errorf("%w: the embedded Redis has no disk: fsync needs a Redis of its own", lua.ErrDurability)

// checkDurability comes before claims are taken: a promise that Redis can't keep is refused, not given.
func (s *stack) checkDurability(ctx context.Context) error {
	if !s.cfg.Durability.IsFsync() {
		return nil
	}
	if s.cfg.RedisURL == "" {
		return config.Refuse("DURABILITY", "%w", errEmbedded)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.orLater(ctx, func(ctx context.Context) error {
		advice, err := s.scripts.CheckDurability(ctx)
		if err != nil {
			return refusedIf(err, lua.ErrDurability, "DURABILITY")
		}
		for _, line := range advice {
			s.log.Warn("durability", "advice", line, "durability", s.cfg.Durability.String())
		}
		return nil
	})
}

// committed knows which claims MySQL has.
type committed struct {
	*campaigns.Claims

	scripts *lua.Scripts
}

// Signaled is what consumers signaled last.
func (c committed) Signaled(ctx context.Context, partitions []int) []string {
	return c.scripts.Signaled(ctx, partitions)
}

// signalTimeout bounds one signal.
const signalTimeout = time.Second

// offsetSignal tells API processes how far MySQL has applied the claim streams, beside the flushes: they don't wait for a Redis that hangs.
type offsetSignal struct {
	scripts *lua.Scripts
	offsets chan map[int]models.Offset // of one flush, or of several while Redis is slow
	stopped chan struct{}
}

func newOffsetSignal(scripts *lua.Scripts) *offsetSignal {
	s := &offsetSignal{scripts: scripts, offsets: make(chan map[int]models.Offset, 1), stopped: make(chan struct{})}
	go func() {
		defer close(s.stopped)
		for offsets := range s.offsets {
			ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
			_ = s.scripts.Signal(ctx, offsets) // it is a hint
			cancel()
		}
	}()
	return s
}

// tell is called by one goroutine.
func (s *offsetSignal) tell(offsets map[int]models.Offset) {
	select {
	case earlier := <-s.offsets:
		maps.Copy(earlier, offsets)
		offsets = earlier
	default:
	}
	s.offsets <- offsets
}

func (s *offsetSignal) stop() {
	close(s.offsets)
	<-s.stopped
}
