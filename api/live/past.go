package live

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// pastMax bounds a campaign's points, one a second.
	pastMax = 600
	// sampledFor is how long a campaign is sampled after its last claim in
	// this process.
	sampledFor = pastMax * Every
	// sampledMax bounds the campaigns that are sampled without a watcher:
	// those with the latest claims.
	sampledMax = 64
	// Without a claim for lullAfter they are sampled only every lullEvery:
	// their rates are 0 by then.
	lullAfter = 5 * Every
	lullEvery = 10 * Every
)

type point struct {
	at                     time.Time
	left, backlog, flushMs int64
	isBacklogKnown         bool
	accepted               float64
	refused                map[string]float64
	p50, p99               *float64
}

// past is a ring of a campaign's latest points.
type past struct {
	points []point
	oldest int
}

func (p *past) add(one *point) {
	if len(p.points) < pastMax {
		p.points = append(p.points, *one)
		return
	}
	p.points[p.oldest] = *one
	p.oldest = (p.oldest + 1) % pastMax
}

// pastEvent is a campaign's past, by column. Unknown values are null.
type pastEvent struct {
	At      []int64    `json:"at"` // milliseconds since 1970
	Left    []int64    `json:"left"`
	Backlog []*int64   `json:"backlog"`
	FlushMs []*int64   `json:"flush_ms"`
	P50Ms   []*float64 `json:"p50_ms"`
	P99Ms   []*float64 `json:"p99_ms"`
	// claims a second: accepted, and by a refusal's code
	Rates map[string][]float64 `json:"rates"`
}

const acceptedRate = "accepted"

// event returns the points in order. A rate that appears later was 0 before.
func (p *past) event() *pastEvent {
	e := &pastEvent{Rates: map[string][]float64{acceptedRate: nil}}
	for i := range p.points {
		for code := range p.points[i].refused {
			e.Rates[code] = nil
		}
	}
	for i := range p.points {
		at := &p.points[(p.oldest+i)%len(p.points)]
		e.At = append(e.At, at.at.UnixMilli())
		e.Left = append(e.Left, at.left)
		e.Backlog = append(e.Backlog, known(at.backlog, at.isBacklogKnown))
		e.FlushMs = append(e.FlushMs, known(at.flushMs, at.flushMs > 0))
		e.P50Ms = append(e.P50Ms, at.p50)
		e.P99Ms = append(e.P99Ms, at.p99)
		for name := range e.Rates {
			rate := at.refused[name]
			if name == acceptedRate {
				rate = at.accepted
			}
			e.Rates[name] = append(e.Rates[name], rate)
		}
	}
	return e
}

func known(n int64, is bool) *int64 {
	if !is {
		return nil
	}
	return &n
}

// remember adds a sample's events to their campaigns' pasts, and drops the
// pasts of campaigns that aren't sampled any more.
func (s *Sampler) remember(sampled []string, events []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.pasts, func(id string, _ *past) bool { return !s.isKept(sampled, id) })
	for i := range events {
		e := &events[i]
		if e.First { // its rates are unknown
			continue
		}
		if s.pasts[e.CampaignID] == nil {
			s.pasts[e.CampaignID] = &past{}
		}
		s.pasts[e.CampaignID].add(&point{
			at: e.At.Time, left: e.Remaining, backlog: e.Backlog, flushMs: e.FlushMs, isBacklogKnown: e.BooksAsOf.Unix() > 0,
			accepted: e.AcceptedPerS, refused: e.RefusedPerS, p50: e.P50Ms, p99: e.P99Ms,
		})
	}
}

func (s *Sampler) pastOf(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pasts[id]
	if p == nil {
		return nil
	}
	return frameOf("past", p.event())
}

func (s *Sampler) isKept(sampled []string, id string) bool {
	return slices.Contains(sampled, id) || slices.Contains(s.kept, id)
}

func (s *Sampler) keepSampling(now time.Time, claimedFrom map[string]map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range claimedFrom {
		s.claimedAt[id] = now
	}
}

// dueLocked are the campaigns to sample now without a watcher.
func (s *Sampler) dueLocked(now time.Time) []string {
	maps.DeleteFunc(s.claimedAt, func(_ string, at time.Time) bool { return now.Sub(at) >= sampledFor })
	ids := slices.SortedFunc(maps.Keys(s.claimedAt), func(a, b string) int {
		return cmp.Or(s.claimedAt[b].Compare(s.claimedAt[a]), cmp.Compare(a, b))
	})
	s.kept = ids[:min(len(ids), sampledMax)]
	if now.Sub(s.keptAt) >= lullEvery {
		s.keptAt = now
		return s.kept
	}
	lull := slices.IndexFunc(s.kept, func(id string) bool { return now.Sub(s.claimedAt[id]) >= lullAfter })
	if lull < 0 {
		return s.kept
	}
	return s.kept[:lull]
}
