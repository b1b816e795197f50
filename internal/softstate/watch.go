package softstate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// answersFor is how long counts of answers are kept after the last one.
const answersFor = 2 * time.Minute

// Answers are how claims of a campaign were answered: how often, by the code of
// a refusal and by how long it took, see models.TookPrefix.
type Answers struct {
	CampaignID string
	Counts     map[string]int64
}

// CountAnswers adds to the counts that all API processes share.
func (s *Store) CountAnswers(ctx context.Context, all []Answers) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range all {
			keys := s.scripts.KeysOf(all[i].CampaignID)
			key := answersKey(&keys)
			for name, n := range all[i].Counts {
				p.HIncrBy(ctx, key, name, n)
			}
			p.Expire(ctx, key, answersFor)
		}
		return nil
	})
	return err
}

// Watched is what Redis says of a campaign to those who watch it.
type Watched struct {
	State   lua.State        // AsOf is by this process' clock
	Answers map[string]int64 // as of Answers; since the counts started, over all API processes
	// State says nothing: lua.ErrAbsent, lua.ErrDamaged, or that of a Redis
	// that is away
	Err error
}

// Watch reads many campaigns at once, in one round trip and without a script.
// The parts of a campaign are not held against each other, which lua's State
// does. It fails when no server answers.
func (s *Store) Watch(ctx context.Context, campaignIDs []string) ([]Watched, error) {
	states := make([]*redis.MapStringStringCmd, len(campaignIDs))
	answers := make([]*redis.MapStringStringCmd, len(campaignIDs))
	generations := make([]*redis.StringCmd, len(campaignIDs))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range campaignIDs {
			keys := s.scripts.KeysOf(id)
			states[i] = p.HGetAll(ctx, keys.State)
			answers[i] = p.HGetAll(ctx, answersKey(&keys))
			generations[i] = p.HGet(ctx, keys.Signals, "generation")
		}
		return nil
	})
	now := time.Now().UTC()
	seen := make([]Watched, len(campaignIDs))
	away := 0
	var err error
	for i, id := range campaignIDs {
		w := &seen[i]
		isDamaged := redis.HasErrorPrefix(states[i].Err(), "WRONGTYPE")
		// While one server of a cluster hangs, go-redis fails commands that
		// others have answered. Those have their values.
		if (states[i].Val() == nil || answers[i].Val() == nil) && !isDamaged {
			err = errors.Join(states[i].Err(), answers[i].Err())
			w.Err = err
			away++
			continue
		}
		w.State, w.Err = s.scripts.StateOf(id, states[i].Val(), generations[i].Val())
		if isDamaged {
			w.Err = lua.ErrDamaged
		}
		w.State.AsOf = now
		w.Answers = make(map[string]int64, len(answers[i].Val()))
		for name, text := range answers[i].Val() {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				w.Answers[name] = n
			}
		}
	}
	if away < len(seen) {
		err = nil // those of other servers are known
	}
	return seen, err
}
