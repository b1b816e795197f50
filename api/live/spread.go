package live

import (
	"context"
	"errors"
	"slices"
	"time"

	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/models"
)

// addSpread finds the sharded campaigns among those that MySQL was never
// asked about, while it is unreachable. Redis alone is enough to show their
// figures as those of other campaigns.
func (s *Sampler) addSpread(ctx context.Context, ids []string) {
	var unknown []string
	for _, id := range ids {
		if _, known := s.books[id]; !known {
			unknown = append(unknown, id)
		}
	}
	for id, books := range spreadOf(ctx, s.cfg.Redis, unknown) {
		if s.books == nil {
			s.books = make(map[string]models.CampaignBooks)
		}
		s.books[id] = books
	}
}

// spreadOf returns the sharded campaigns among ids, from Redis. Their
// counters in MySQL are unknown. A campaign with unreachable lots is left
// out: its total would be wrong.
func spreadOf(ctx context.Context, redis Redis, ids []string) map[string]models.CampaignBooks {
	found := make(map[string]models.CampaignBooks)
	firstIDs := make([]string, len(ids))
	for i, id := range ids {
		firstIDs[i] = models.ShardID(id, 1)
	}
	seen, err := redis.Watch(ctx, firstIDs)
	if err != nil || len(ids) == 0 {
		return found
	}
	for i, id := range ids {
		first := &seen[i].State
		if seen[i].Err != nil || first.Meta.Shards <= 1 {
			continue
		}
		c := models.Campaign{ID: id, Kind: first.Meta.Kind, Status: first.Status, Shards: first.Meta.Shards, LowStockAt: first.LowStockAt}
		lots, err := redis.Watch(ctx, c.ShardIDs())
		if err != nil || slices.ContainsFunc(lots, func(w softstate.Watched) bool { return w.Err != nil && !errors.Is(w.Err, lua.ErrAbsent) }) {
			continue
		}
		books := models.CampaignBooks{}
		for j, lotID := range c.ShardIDs() {
			c.Total += lots[j].State.Total
			st := &lots[j].State
			lot := models.Campaign{ID: lotID, Status: c.Status, Shards: c.Shards, Partition: st.Meta.Partition, Total: st.Total}
			books.Shards = append(books.Shards, models.CampaignBooks{Campaign: lot})
		}
		books.Campaign = c
		found[id] = books
	}
	return found
}

// StockInRedis reads a campaign's stock from Redis only. MySQL's figures are
// 0. Errors as lua.Scripts.Watch.
func (s *Sampler) StockInRedis(ctx context.Context, id string) (models.Stock, error) {
	spread := spreadOf(ctx, s.cfg.Redis, []string{id})
	lots := lotsOf([]string{id}, spread)
	watched, err := s.cfg.Redis.Watch(ctx, lots)
	if err != nil {
		return models.Stock{}, err
	}
	seen := byLot(lots, watched)
	books := spread[id]
	if len(books.Shards) == 0 && seen[id].Err != nil {
		return models.Stock{}, seen[id].Err
	}
	e := eventOnce(time.Now(), seen, id, &books)
	return models.Stock{CampaignID: id, Total: e.Total, Remaining: e.Remaining, Claimed: e.Claimed, Low: e.Low, AsOf: e.At}, nil
}
