package live

import (
	"context"
	"time"

	"dibs/internal/softstate"
	"dibs/models"
)

// countedMax bounds the campaigns whose counts are sent in one round.
// Others wait for the next.
const countedMax = 256

// Counts returns what this process counted since the last call, for up to
// most campaigns: by campaign, then by name.
type Counts func(most int) map[string]map[string]int64

// Record sends this process' counts of answers to Redis once a second, until
// Stop. Redis sums up those of all API processes. Counts that Redis doesn't
// accept are lost: only watchers use them. Campaigns with claims here are
// sampled even without watchers, so that a watch can start with their past.
func (s *Sampler) Record(counts Counts) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = counts
	return s.runLocked()
}

// record sends the counts since the last round. The next sample includes
// them.
func (s *Sampler) record() {
	s.mu.Lock()
	counts := s.counts
	s.mu.Unlock()
	if counts == nil {
		return
	}
	if news := counts(countedMax); len(news) > 0 {
		s.keepSampling(time.Now(), news)
		s.countAnswers(news)
	}
}

func (s *Sampler) countAnswers(news map[string]map[string]int64) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	answers := make([]softstate.Answers, 0, len(news))
	for id, counts := range news {
		answers = append(answers, softstate.Answers{CampaignID: id, Counts: counts})
	}
	if err := s.cfg.Redis.CountAnswers(ctx, answers); err != nil {
		s.log("answers of the last second are not counted for watchers; is redis up?", err)
	}
}

// Snapshot reads the campaigns' figures once, with rates of 0. It omits
// campaigns that neither server knows.
func Snapshot(ctx context.Context, redis Redis, books Books, ids []string) (events []Event, err error) {
	all, err := books.BooksOfAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	lots := lotsOf(ids, all)
	watched, err := redis.Watch(ctx, lots)
	if err != nil {
		return nil, err
	}
	seen := byLot(lots, watched)
	for _, id := range ids {
		if of, known := all[id]; len(of.Shards) > 0 || known && !isAway(seen[id]) {
			events = append(events, eventOnce(time.Now(), seen, id, &of))
		}
	}
	return events, nil
}

func eventOnce(now time.Time, seen map[string]*softstate.Watched, id string, books *models.CampaignBooks) (e Event) {
	if len(books.Shards) > 0 {
		e = (&history{}).aggregateShards(now, seen[id], books, func(lot string) (*softstate.Watched, *history) { return seen[lot], &history{} })
	} else {
		e = (&history{}).event(now, seen[id], books)
	}
	e.CampaignID = id
	return e
}
