package apitest

import (
	"context"
	"maps"
	"sort"
	"time"

	"dibs/internal/softstate"
	"dibs/models"
)

// Watch reads the Redis state of many campaigns.
func (r *Fake) Watch(ctx context.Context, ids []string) ([]softstate.Watched, error) {
	r.Mu.Lock()
	fail := r.RedisFails
	answers := r.Answers
	r.Mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	seen := make([]softstate.Watched, len(ids))
	for i, id := range ids {
		r.Mu.Lock()
		away := r.RedisAway[id]
		r.Mu.Unlock()
		if away != nil {
			seen[i].Err = away
			continue
		}
		seen[i].State, seen[i].Err = r.State(ctx, id)
		seen[i].Answers = map[string]int64{}
		r.Mu.Lock()
		maps.Copy(seen[i].Answers, answers[id])
		r.Mu.Unlock()
	}
	return seen, nil
}

// CountAnswers adds to the counts.
func (r *Fake) CountAnswers(_ context.Context, all []softstate.Answers) error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Answers == nil {
		r.Answers = map[string]map[string]int64{}
	}
	for _, one := range all {
		if r.Answers[one.CampaignID] == nil {
			r.Answers[one.CampaignID] = map[string]int64{}
		}
		for name, n := range one.Counts {
			r.Answers[one.CampaignID][name] += n
		}
	}
	return r.RedisFails
}

// Active returns the campaigns that are not closed.
func (r *Fake) Active(_ context.Context, most int) ([]string, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	var ids []string
	for id, c := range r.Campaigns {
		if c.Status != models.StatusClosed && !models.IsShardID(id) {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids[:min(most, len(ids))], r.Fail
}

// Public returns the public campaigns.
func (r *Fake) Public(_ context.Context, _ int) ([]string, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	var ids []string
	for id, c := range r.Campaigns {
		if c.Public != "" {
			ids = append(ids, id)
		}
	}
	return ids, r.Fail
}

// BooksOfAll reads the books of many campaigns.
func (r *Fake) BooksOfAll(ctx context.Context, ids []string) (map[string]models.CampaignBooks, error) {
	all := map[string]models.CampaignBooks{}
	for _, id := range ids {
		c, err := r.Get(ctx, id)
		if err != nil {
			if r.fails() != nil {
				return nil, err
			}
			continue
		}
		books, err := r.Books(ctx, id)
		if err != nil {
			return nil, err
		}
		books.At = time.Now().UTC()
		of := models.CampaignBooks{Campaign: c, Books: books}
		if c.IsSharded() {
			shards, err := r.BooksOfAll(ctx, c.ShardIDs())
			if err != nil {
				return nil, err
			}
			of.Shards = inOrder(shards, c.ShardIDs())
		}
		all[id] = of
	}
	return all, nil
}

func inOrder(lots map[string]models.CampaignBooks, ids []string) (all []models.CampaignBooks) {
	for _, id := range ids {
		if lot, isThere := lots[id]; isThere {
			all = append(all, lot)
		}
	}
	return all
}

func (r *Fake) fails() error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Fail
}
