package live

import (
	"context"
	"time"

	"dibs/lua"
)

// refusedCampaignsMax bounds the campaigns whose refusals are told in one round; the others' wait for the next.
const refusedCampaignsMax = 256

// Counts are how often claims of each campaign were refused at this process so far, by code. A campaign whose counts fell began anew.
type Counts func() map[string]map[string]int64

// CountRefusals adds what this process refused to the counts in Redis that all API processes share, once a second, until Stop. Counts
// that Redis does not take are lost: they are for people who watch.
func (s *Sampler) CountRefusals(counts Counts) bool {
	return s.cfg.Workers.Go(func() {
		ticker := time.NewTicker(Every)
		defer ticker.Stop()
		told := make(map[string]map[string]int64)
		for {
			select {
			case <-ticker.C:
			case <-s.ctx.Done():
				return
			}
			if news := newRefusals(counts(), told); len(news) > 0 {
				s.countRefused(news)
			}
		}
	})
}

func (s *Sampler) countRefused(news []lua.Refusals) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if err := s.cfg.Redis.CountRefused(ctx, news); err != nil {
		s.log("refusals of the last second are not counted for watchers; is redis up?", err)
	}
}

// newRefusals are the refusals since the last round, and marks them as told.
func newRefusals(now, told map[string]map[string]int64) (news []lua.Refusals) {
	for id := range told {
		if _, there := now[id]; !there {
			delete(told, id)
		}
	}
	for id, byCode := range now {
		if len(news) == refusedCampaignsMax {
			break
		}
		since := make(map[string]int64)
		for code, n := range byCode {
			if was := told[id][code]; n >= was {
				n -= was
			}
			if n > 0 {
				since[code] = n
			}
		}
		told[id] = byCode
		if len(since) > 0 {
			news = append(news, lua.Refusals{CampaignID: id, ByCode: since})
		}
	}
	return news
}
