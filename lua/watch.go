package lua

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// refusedFor is how long counts of refusals are kept after the last one.
const refusedFor = 2 * time.Minute

// Refusals are how often claims of a campaign were refused, by the code of the refusal.
type Refusals struct {
	CampaignID string
	ByCode     map[string]int64
}

// Watched is what Redis says of a campaign to those who watch it.
type Watched struct {
	State   State            // AsOf is by this process' clock
	Refused map[string]int64 // by code; how often since the counts started, over all API processes
	Err     error            // State says nothing: ErrAbsent, ErrDamaged, or that of a Redis that is away
}

// Watch reads many campaigns at once, in one round trip and without a script. The parts of a campaign are not held against each
// other, which State does. It fails, with errors as State, when no server answers.
func (s *Scripts) Watch(ctx context.Context, campaignIDs []string) ([]Watched, error) {
	states := make([]*redis.MapStringStringCmd, len(campaignIDs))
	refused := make([]*redis.MapStringStringCmd, len(campaignIDs))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range campaignIDs {
			keys := s.KeysOf(id)
			states[i] = p.HGetAll(ctx, keys.State)
			refused[i] = p.HGetAll(ctx, keys.Refused)
		}
		return nil
	})
	now := s.opts.Clock().UTC()
	seen := make([]Watched, len(campaignIDs))
	away := 0
	var err error
	for i, id := range campaignIDs {
		// While one server of a cluster hangs, go-redis fails commands that others have answered. Those have their values.
		if (states[i].Val() == nil || refused[i].Val() == nil) && !isWrongType(states[i].Err()) {
			err = classifyError("hgetall", errors.Join(states[i].Err(), refused[i].Err()))
			seen[i].Err = err
			away++
			continue
		}
		seen[i] = s.watched(id, states[i], refused[i].Val())
		seen[i].State.AsOf = now
	}
	if away < len(seen) {
		err = nil // those of other servers are known
	}
	return seen, err
}

func (s *Scripts) watched(campaignID string, state *redis.MapStringStringCmd, refused map[string]string) (w Watched) {
	switch {
	case state.Val() == nil:
		w.Err = ErrDamaged
	case len(state.Val()) == 0:
		w.Err = ErrAbsent
	default:
		w.State, w.Err = s.stateOf(campaignID, &fields{text: state.Val()})
	}
	w.Refused = make(map[string]int64, len(refused))
	for code, text := range refused {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			w.Refused[code] = n
		}
	}
	return w
}

// CountRefused adds refusals to the counts that all API processes share. They are for people who watch: counts that do not reach
// Redis are lost, and they expire. Errors as State.
func (s *Scripts) CountRefused(ctx context.Context, all []Refusals) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range all {
			key := s.KeysOf(all[i].CampaignID).Refused
			for code, n := range all[i].ByCode {
				p.HIncrBy(ctx, key, code, n)
			}
			p.Expire(ctx, key, refusedFor)
		}
		return nil
	})
	return classifyError("hincrby", err)
}
