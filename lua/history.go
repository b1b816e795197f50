package lua

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// HistoryStep is the width of a step of the history.
	HistoryStep = 15 * time.Second
	// HistorySpan is how far back the history of a campaign goes.
	HistorySpan = time.Hour
	// historyPart is how much of the history one key holds, which expires as a whole.
	historyPart = 10 * time.Minute
)

// HistoryPoint is what one process adds to the current step of the history of a campaign.
type HistoryPoint struct {
	CampaignID string
	Counts     map[string]int64 // added to what other processes counted
	Gauges     map[string]int64 // the last one stays
}

// History is what is known of a campaign, by the start of the step in seconds since 1970 and then by name.
type History map[int64]map[string]int64

// AddHistory adds points to the step that holds at. It is for people who watch: what does not reach Redis is lost. Errors as State.
func (s *Scripts) AddHistory(ctx context.Context, at time.Time, points []HistoryPoint) error {
	step := at.Truncate(HistoryStep).Unix()
	part := at.Unix() / int64(historyPart/time.Second)
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range points {
			key := s.KeysOf(points[i].CampaignID).historyKey(part)
			field := strconv.FormatInt(step, 10) + ":"
			for name, n := range points[i].Counts {
				p.HIncrBy(ctx, key, field+name, n)
			}
			for name, n := range points[i].Gauges {
				p.HSet(ctx, key, field+name, n)
			}
			p.Expire(ctx, key, HistorySpan+historyPart)
		}
		return nil
	})
	return classifyError("history", err)
}

// ReadHistory reads the history of campaigns since a time, in their order, in one round trip. Errors as State.
func (s *Scripts) ReadHistory(ctx context.Context, campaignIDs []string, since time.Time) ([]History, error) {
	first := since.Unix() / int64(historyPart/time.Second)
	last := time.Now().Unix() / int64(historyPart/time.Second)
	parts := make([][]*redis.MapStringStringCmd, len(campaignIDs))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range campaignIDs {
			keys := s.KeysOf(id)
			for part := first; part <= last; part++ {
				parts[i] = append(parts[i], p.HGetAll(ctx, keys.historyKey(part)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("history", err)
	}
	all := make([]History, len(campaignIDs))
	for i := range parts {
		all[i] = History{}
		for _, part := range parts[i] {
			all[i].add(part.Val(), since.Unix())
		}
	}
	return all, nil
}

func (h History) add(fields map[string]string, since int64) {
	for field, text := range fields {
		start, name, _ := strings.Cut(field, ":")
		step, err := strconv.ParseInt(start, 10, 64)
		n, errN := strconv.ParseInt(text, 10, 64)
		if err != nil || errN != nil || step < since {
			continue
		}
		if h[step] == nil {
			h[step] = map[string]int64{}
		}
		h[step][name] = n
	}
}
