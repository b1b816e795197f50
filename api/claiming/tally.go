package claiming

import (
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// accepted is the place of claims that were answered with yes, replays
// apart, in a tally; refusals follow in the order of wire.ClaimCodes.
const accepted = 0

// places are where each outcome has its count in a tally, and outcomes
// what is counted there.
var places, outcomes = makePlaces() //nolint:gochecknoglobals // nothing writes to them

func makePlaces() (places map[string]int, outcomes [1 + codesMax]string) {
	places = map[string]int{string(models.OutcomeClaimed): accepted}
	outcomes[accepted] = string(models.OutcomeClaimed)
	for i, code := range wire.ClaimCodes {
		places[string(code)] = i + 1
		outcomes[i+1] = string(code)
	}
	return places, outcomes
}

// codesMax bounds wire.ClaimCodes.
const codesMax = 24

// tally counts the claims of one campaign in this process: by what became
// of them, and by how long they took.
type tally struct {
	byPlace [1 + codesMax]atomic.Int64
	byTime  [models.TookBuckets]atomic.Uint32

	// What Answered has told of them. Its caller alone uses these.
	toldByPlace [1 + codesMax]int64
	toldByTime  [models.TookBuckets]uint32
}

// count counts a claim. Replays are no news and count nowhere.
func (t *tally) count(outcome string, took time.Duration) {
	if place, counts := places[outcome]; counts {
		t.byPlace[place].Add(1)
		t.byTime[models.TookBucket(took)].Add(1)
	}
}

// Answered is how many claims this process answered since the call before:
// by campaign, and then "claimed", by the code of a refusal, and by how
// long they took. Those of campaigns beyond most wait for the next call.
// It is for one caller.
func (s *Routes) Answered(most int) map[string]map[string]int64 {
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	all := make(map[string]map[string]int64)
	for id, l := range s.lanes.byID {
		if len(all) == most {
			break
		}
		if news := l.tally.news(); news != nil {
			all[id] = news
		}
	}
	return all
}

// news is what was counted since the call before, nil if that is nothing.
func (t *tally) news() (news map[string]int64) {
	add := func(name string, n int64) {
		if news == nil {
			news = make(map[string]int64)
		}
		news[name] = n
	}
	for place := range t.byPlace {
		n := t.byPlace[place].Load()
		if since := n - t.toldByPlace[place]; since > 0 {
			add(outcomes[place], since)
		}
		t.toldByPlace[place] = n
	}
	for i := range t.byTime {
		n := t.byTime[i].Load()
		if since := n - t.toldByTime[i]; since > 0 {
			add(models.TookPrefix+strconv.Itoa(i), int64(since))
		}
		t.toldByTime[i] = n
	}
	return news
}

// Tally is what became of the claims of a campaign at this process,
// replays apart.
type Tally struct {
	CampaignID string
	Shards     int              // above 1: the campaign is spread over so many
	Claims     int64            // asked for
	ByOutcome  map[string]int64 // only those above 0
}

// Busiest are the campaigns of which this process was asked for the most
// claims, up to most.
func (s *Routes) Busiest(most int) []Tally {
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	all := make([]Tally, 0, len(s.lanes.byID))
	for id, l := range s.lanes.byID {
		one := Tally{CampaignID: id, Shards: l.meta.Shards}
		for i := range l.tally.byPlace {
			one.Claims += l.tally.byPlace[i].Load()
		}
		if one.Claims > 0 {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(b.Claims, a.Claims), cmp.Compare(a.CampaignID, b.CampaignID))
	})
	all = all[:min(most, len(all))]
	for i := range all {
		all[i].ByOutcome = s.lanes.byID[all[i].CampaignID].tally.byOutcome()
	}
	return all
}

func (t *tally) byOutcome() map[string]int64 {
	all := make(map[string]int64)
	for outcome, place := range places {
		if n := t.byPlace[place].Load(); n > 0 {
			all[outcome] = n
		}
	}
	return all
}
