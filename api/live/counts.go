package live

import (
	"context"
	"maps"
	"slices"
	"time"

	"dibs/lua"
)

// countedMax bounds the campaigns whose counts are sent in one round; the others' wait for the next.
const countedMax = 256

// Counts are counts of each campaign at this process so far, by name. A campaign whose counts fell started over.
type Counts func() map[string]map[string]int64

// Record sends what this process counts to Redis, where the counts of all API processes add up, until Stop: refusals each second for
// watchers, and everything for the history at the end of each of its steps. What Redis does not take is lost: it is for people who watch.
func (s *Sampler) Record(refused, all Counts) bool {
	return s.cfg.Workers.Go(func() {
		ticker := time.NewTicker(Every)
		defer ticker.Stop()
		sentRefused := make(map[string]map[string]int64)
		sent := all()
		step := time.Now().Truncate(lua.HistoryStep)
		for {
			select {
			case <-ticker.C:
			case <-s.ctx.Done():
				return
			}
			if news := newCounts(refused(), sentRefused); len(news) > 0 {
				s.countRefused(news)
			}
			if now := time.Now().Truncate(lua.HistoryStep); now.After(step) {
				if news := newCounts(all(), sent); len(news) > 0 {
					s.recordHistory(step, news)
				}
				step = now
			}
		}
	})
}

func (s *Sampler) countRefused(news map[string]map[string]int64) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	refusals := make([]lua.Refusals, 0, len(news))
	for id, byCode := range news {
		refusals = append(refusals, lua.Refusals{CampaignID: id, ByCode: byCode})
	}
	if err := s.cfg.Redis.CountRefused(ctx, refusals); err != nil {
		s.log("refusals of the last second are not counted for watchers; is redis up?", err)
	}
}

// recordHistory adds a step to the history of the campaigns that were claimed from in it, with how they are at its end.
func (s *Sampler) recordHistory(step time.Time, news map[string]map[string]int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*askTimeout)
	defer cancel()
	ids := slices.Sorted(maps.Keys(news))
	gauges := make(map[string]map[string]int64, len(ids))
	if events, err := Snapshot(ctx, s.cfg.Redis, s.cfg.Books, ids); err == nil {
		for i := range events {
			e := &events[i]
			gauges[e.CampaignID] = map[string]int64{"left": e.Remaining, "backlog": e.Backlog, "flush": e.FlushMs}
		}
	}
	points := make([]lua.HistoryPoint, len(ids))
	for i, id := range ids {
		points[i] = lua.HistoryPoint{CampaignID: id, Counts: news[id], Gauges: gauges[id]}
	}
	if err := s.cfg.Redis.AddHistory(ctx, step, points); err != nil {
		s.log("a step of the history is lost; is redis up?", err)
	}
}

// newCounts is what was counted since the last round, and marks it as sent.
func newCounts(now, sent map[string]map[string]int64) map[string]map[string]int64 {
	for id := range sent {
		if _, there := now[id]; !there {
			delete(sent, id)
		}
	}
	news := make(map[string]map[string]int64)
	for id, counts := range now {
		if len(news) == countedMax {
			break
		}
		since := make(map[string]int64)
		for name, n := range counts {
			if was := sent[id][name]; n >= was {
				n -= was
			}
			if n > 0 {
				since[name] = n
			}
		}
		sent[id] = counts
		if len(since) > 0 {
			news[id] = since
		}
	}
	return news
}

// Snapshot reads how campaigns are, once; their rates are 0. Campaigns that neither server knows are left out.
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
	find := func(id string) (*lua.Watched, *history) { return seen[id], &history{} }
	for _, id := range ids {
		of, known := all[id]
		var e Event
		switch w := seen[id]; {
		case len(of.Shards) > 0:
			e = (&history{}).aggregateShards(time.Now(), w, &of, find)
		case known && !isAway(w):
			e = (&history{}).event(time.Now(), w, &of)
		default:
			continue
		}
		e.CampaignID = id
		events = append(events, e)
	}
	return events, nil
}
