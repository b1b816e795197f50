package torture

import (
	"maps"
	"sync"
	"time"
)

// gauge counts replies to claims, from reset to reset.
type gauge struct {
	mu      sync.Mutex
	answers int
	sure    int
	refused map[string]int       // uncertain replies, by code
	last    map[string]time.Time // each campaign's last certain reply
	longest time.Duration
}

// Cost is a fault's effect on the clients.
type Cost struct {
	// to claims, from the fault's start to the next one's
	Answers int `json:"answers"`
	// of these, a claim or a true refusal
	Certain int            `json:"certain"`
	Refused map[string]int `json:"refused,omitempty"` // the others, by code
	// longest time in which a campaign got no certain reply
	GapMs int64 `json:"longest_gap_ms"`
}

// reset starts counting for campaigns.
func (g *gauge) reset(all []*campaign) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = 0
	g.sure = 0
	g.longest = 0
	g.refused = map[string]int{}
	g.last = map[string]time.Time{}
	for _, c := range all {
		g.last[c.id] = time.Now()
	}
}

func (g *gauge) note(campaign, code string, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, counted := g.last[campaign]
	if !counted {
		return
	}
	g.answers++
	if !certain(code) {
		g.refused[code]++
		return
	}
	g.sure++
	g.longest = max(g.longest, at.Sub(last))
	g.last[campaign] = at
}

func (g *gauge) cost() Cost {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := g.longest
	for _, last := range g.last {
		longest = max(longest, time.Since(last))
	}
	return Cost{Answers: g.answers, Certain: g.sure, Refused: maps.Clone(g.refused), GapMs: longest.Milliseconds()}
}

// quietSince returns the campaigns without a certain reply since then.
func (g *gauge) quietSince(then time.Time) (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, last := range g.last {
		if !last.After(then) {
			ids = append(ids, id)
		}
	}
	return ids
}
