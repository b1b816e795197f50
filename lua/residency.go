package lua

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"dibs/models"
)

// statusElse is the reply of fence.lua, evict.lua and release.lua when Redis holds something else than was meant.
const statusElse = 3

// Fence stops the claims of a load of a campaign, and of those before it. A campaign that Redis does not hold takes none anyway.
// Errors: ErrOther (a newer load is there), ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Fence(ctx context.Context, campaignID string, epoch int64) error {
	keys := []string{s.KeysOf(campaignID).State}
	code, reply, err := s.ask(ctx, s.fence, keys, []any{epoch})
	switch {
	case err != nil:
		return err
	case code == statusOK, code == statusAbsent:
		return nil
	case code == statusElse:
		return fmt.Errorf("%w: fence %s at epoch %d", ErrOther, campaignID, epoch)
	}
	return damaged(s.fence.name, keys, reply)
}

// MaxFences is the most campaigns that FenceAll takes, fencesAtOnce how many of them it fences at the same time.
const MaxFences, fencesAtOnce = 1000, 16

// FenceAll is Fence for up to MaxFences campaigns, each with its epoch. It returns those that Redis holds so; they take no claims now. A
// damaged state, which takes none, is not among them. Errors: ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) FenceAll(ctx context.Context, epochs map[string]int64) (fenced []string, err error) {
	there := make(map[string]*redis.IntCmd, len(epochs))
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id := range epochs {
			there[id] = p.Exists(ctx, s.KeysOf(id).State)
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("exists", err)
	}
	var fences errgroup.Group
	fences.SetLimit(fencesAtOnce)
	var mu sync.Mutex
	for id, exists := range there {
		if exists.Val() == 0 {
			continue
		}
		fences.Go(func() error {
			err := s.Fence(ctx, id, epochs[id])
			if errors.Is(err, ErrOther) || errors.Is(err, ErrDamaged) {
				return nil
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				fenced = append(fenced, id)
			}
			return err
		})
	}
	return fenced, fences.Wait()
}

// tombstoneLife is how long a tombstone stays of a campaign that is not loaded again: no backup that is older is restored.
const tombstoneLife = 90 * 24 * time.Hour

// Evict removes a campaign from Redis if its load and its number of claims are those of MySQL, in c, and no one has claimed
// from it for idle. Else evicted is false and nothing was changed. It leaves a tombstone, see LotView. Errors: ErrAbsent, ErrDamaged,
// ErrUnavailable, ErrOutcomeUnknown.
func (s *Scripts) Evict(ctx context.Context, c *models.Campaign, idle time.Duration) (evicted bool, err error) {
	all, errs := s.EvictAll(ctx, []models.Campaign{*c}, idle)
	return all[0], errs[0]
}

// EvictAll is Evict for many campaigns in one round trip. An error is of its campaign alone.
func (s *Scripts) EvictAll(ctx context.Context, cs []models.Campaign, idle time.Duration) (evicted []bool, errs []error) {
	calls := make([]call, len(cs))
	for i := range cs {
		c := &cs[i]
		k := s.KeysOf(c.ID)
		calls[i] = call{
			keys: []string{k.State, k.Users, k.Keys, k.Evicted, k.Waves, k.Moves},
			args: []any{s.serverNow(), c.Epoch, c.SyncedSeq, idle.Milliseconds(), int64(tombstoneLife.Seconds())},
		}
	}
	evicted = make([]bool, len(cs))
	errs = make([]error, len(cs))
	for i, a := range s.runPipelined(ctx, s.evict, calls) {
		errs[i] = a.err
		if a.err == nil {
			evicted[i], errs[i] = readEvict(s.evict.name, cs[i].ID, calls[i].keys, a.reply) //nolint:gosec // one each
		}
	}
	return evicted, errs
}

// readEvict reads a reply of evict.lua. Errors: ErrAbsent, ErrDamaged, ErrOutcomeUnknown.
func readEvict(script, campaignID string, keys []string, reply []any) (evicted bool, err error) {
	code, err := status(script, reply)
	switch {
	case err != nil:
		return false, err
	case code == statusOK, code == statusElse:
		return code == statusOK, nil
	}
	return false, refusal(script, campaignID, keys, code, reply)
}

func tombstone(seen Position) string {
	return formatInt(seen.Epoch) + ":" + formatInt(seen.Seq)
}

// ask runs a script and reads the status of its reply.
func (s *Scripts) ask(ctx context.Context, one script, keys []string, args []any) (int64, []any, error) {
	reply, err := s.run(ctx, one, keys, args)
	if err != nil {
		return 0, nil, err
	}
	code, err := status(one.name, reply)
	return code, reply, err
}
