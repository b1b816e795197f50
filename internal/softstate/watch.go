package softstate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// answersFor is how long counts of replies are kept after the last.
const answersFor = 2 * time.Minute

// Answers counts the replies to a campaign's claims, by the
// refusal's code and by duration, see models.TookPrefix.
type Answers struct {
	CampaignID string
	Counts     map[string]int64
}

// CountAnswers adds to the counts shared by all API processes.
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

// Watched is a campaign's Redis state for watchers.
type Watched struct {
	State   lua.State        // AsOf is by this process' clock
	Answers map[string]int64 // since the counts started, over all API processes
	// why State is empty: lua.ErrAbsent, lua.ErrDamaged, or Redis' error
	Err error
}

// Watch reads many campaigns in one round trip without a script.
// Unlike lua's State, it does not check a campaign's parts for
// consistency. It fails if no server answers.
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
		// While one server of a cluster stalls, go-redis also fails
		// commands already answered by others. Those have values.
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
		err = nil // other servers' states are known
	}
	return seen, err
}
