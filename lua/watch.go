package lua

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// answersFor is how long counts of answers are kept after the last one.
const answersFor = 2 * time.Minute

// Answers are how claims of a campaign were answered: how often, by the code of a refusal and by how long it took, see models.TookPrefix.
type Answers struct {
	CampaignID string
	Counts     map[string]int64
}

// Watched is what Redis says of a campaign to those who watch it.
type Watched struct {
	State   State            // AsOf is by this process' clock
	Answers map[string]int64 // as of Answers; since the counts started, over all API processes
	Err     error            // State says nothing: ErrAbsent, ErrDamaged, or that of a Redis that is away
}

// Watch reads many campaigns at once, in one round trip and without a script. The parts of a campaign are not held against each
// other, which State does. It fails, with errors as State, when no server answers.
func (s *Scripts) Watch(ctx context.Context, campaignIDs []string) ([]Watched, error) {
	states := make([]*redis.MapStringStringCmd, len(campaignIDs))
	answers := make([]*redis.MapStringStringCmd, len(campaignIDs))
	generations := make([]*redis.StringCmd, len(campaignIDs))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range campaignIDs {
			keys := s.KeysOf(id)
			states[i] = p.HGetAll(ctx, keys.State)
			answers[i] = p.HGetAll(ctx, keys.Answers)
			generations[i] = p.HGet(ctx, keys.Signals, "generation")
		}
		return nil
	})
	now := s.opts.Clock().UTC()
	seen := make([]Watched, len(campaignIDs))
	away := 0
	var err error
	for i, id := range campaignIDs {
		// While one server of a cluster hangs, go-redis fails commands that others have answered. Those have their values.
		if (states[i].Val() == nil || answers[i].Val() == nil) && !isWrongType(states[i].Err()) {
			err = classifyError("hgetall", errors.Join(states[i].Err(), answers[i].Err()))
			seen[i].Err = err
			away++
			continue
		}
		seen[i] = s.watched(id, states[i], answers[i].Val(), generations[i].Val())
		seen[i].State.AsOf = now
	}
	if away < len(seen) {
		err = nil // those of other servers are known
	}
	return seen, err
}

func (s *Scripts) watched(
	campaignID string, state *redis.MapStringStringCmd, answers map[string]string, generation string,
) (w Watched) {
	switch {
	case state.Val() == nil:
		w.Err = ErrDamaged
	case len(state.Val()) == 0, isAway(state.Val(), generation):
		w.Err = ErrAbsent
	default:
		w.State, w.Err = s.stateOf(campaignID, &fields{text: state.Val()})
	}
	w.Answers = make(map[string]int64, len(answers))
	for name, text := range answers {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			w.Answers[name] = n
		}
	}
	return w
}

// CountAnswers adds to the counts that all API processes share. They are for people who watch: counts that do not reach Redis are lost,
// and they expire. Errors as State.
func (s *Scripts) CountAnswers(ctx context.Context, all []Answers) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range all {
			key := s.KeysOf(all[i].CampaignID).Answers
			for name, n := range all[i].Counts {
				p.HIncrBy(ctx, key, name, n)
			}
			p.Expire(ctx, key, answersFor)
		}
		return nil
	})
	return classifyError("hincrby", err)
}
