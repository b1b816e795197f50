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

// accepted is the index of accepted claims in a tally, without replays.
// Refusals follow in the order of wire.ClaimCodes.
const accepted = 0

// places maps an outcome to its index in a tally; outcomes is the reverse.
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

// tally counts one campaign's claims in this process, by outcome and by
// duration.
type tally struct {
	byPlace [1 + codesMax]atomic.Int64
	byTime  [models.TookBuckets]atomic.Uint32

	// What Answered has reported. Only its caller uses these.
	toldByPlace [1 + codesMax]int64
	toldByTime  [models.TookBuckets]uint32
}

// count counts a claim. Replays are not counted.
func (t *tally) count(outcome string, took time.Duration) {
	if place, counts := places[outcome]; counts {
		t.byPlace[place].Add(1)
		t.byTime[models.TookBucket(took)].Add(1)
	}
}

// Answered is the number of claims that this process answered since the
// last call: by campaign, then by "claimed", a refusal's code, or a bucket
// of duration. Campaigns beyond most wait for the next call. It must have a
// single caller.
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

// news is what was counted since the last call, or nil.
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

// Tally is the outcomes of a campaign's claims in this process, without
// replays.
type Tally struct {
	CampaignID string
	Shards     int              // above 1: the campaign is sharded
	Claims     int64            // including refused ones
	ByOutcome  map[string]int64 // only those above 0
}

// Busiest returns the campaigns with the most claims in this process, up to
// most.
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
