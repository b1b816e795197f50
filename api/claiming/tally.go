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

// accepted is the index of accepted claims in a tally, without
// replays. Refusals follow in the order of wire.ClaimCodes.
const accepted = 0

// indexes maps an outcome to its index in a tally; outcomes is the reverse.
var indexes, outcomes = makeIndexes() //nolint:gochecknoglobals // nothing writes to them

func makeIndexes() (indexes map[string]int, outcomes [1 + codesMax]string) {
	indexes = map[string]int{string(models.OutcomeClaimed): accepted}
	outcomes[accepted] = string(models.OutcomeClaimed)
	for i, code := range wire.ClaimCodes {
		indexes[string(code)] = i + 1
		outcomes[i+1] = string(code)
	}
	return indexes, outcomes
}

const codesMax = 24

// tally counts one campaign's claims in this process, by outcome and
// by duration.
type tally struct {
	byIndex [1 + codesMax]atomic.Int64
	byTime  [models.TookBuckets]atomic.Uint32

	// What Answered has reported. Only its caller uses these.
	reportedByIndex [1 + codesMax]int64
	reportedByTime  [models.TookBuckets]uint32
}

// count counts a claim. Replays are not counted.
func (t *tally) count(outcome string, took time.Duration) {
	if index, counts := indexes[outcome]; counts {
		t.byIndex[index].Add(1)
		t.byTime[models.TookBucket(took)].Add(1)
	}
}

// answeredWithin bounds the time from a claim to its report: 256
// campaigns a second, of campaignsMax.
const answeredWithin = time.Minute

// Answered is the number of claims that this process answered since
// the last call: by campaign, then by "claimed", a refusal's code, or
// a bucket of duration. Campaigns beyond most wait for the next call.
// It must have a single caller, and is called once a second: it does
// not read the counters of idle lanes.
func (s *Routes) Answered(most int) map[string]map[string]int64 {
	idleSince := s.cfg.Clock().Add(-answeredWithin).UnixNano()
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	all := make(map[string]map[string]int64)
	for id, l := range s.lanes.byID {
		if len(all) == most {
			break
		}
		if l.used.Load() < idleSince {
			continue
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
	for index := range t.byIndex {
		n := t.byIndex[index].Load()
		if since := n - t.reportedByIndex[index]; since > 0 {
			add(outcomes[index], since)
		}
		t.reportedByIndex[index] = n
	}
	for i := range t.byTime {
		n := t.byTime[i].Load()
		if since := n - t.reportedByTime[i]; since > 0 {
			add(models.TookPrefix+strconv.Itoa(i), int64(since))
		}
		t.reportedByTime[i] = n
	}
	return news
}

// Tally is the outcomes of a campaign's claims in this process,
// without replays.
type Tally struct {
	CampaignID string
	Shards     int              // above 1: the campaign is sharded
	Claims     int64            // including refused ones
	ByOutcome  map[string]int64 // only those above 0
}

// Busiest returns the campaigns with the most claims in this process,
// up to most.
func (s *Routes) Busiest(most int) []Tally {
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	all := make([]Tally, 0, len(s.lanes.byID))
	for id, l := range s.lanes.byID {
		one := Tally{CampaignID: id, Shards: l.meta.Shards}
		for i := range l.tally.byIndex {
			one.Claims += l.tally.byIndex[i].Load()
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
	for outcome, index := range indexes {
		if n := t.byIndex[index].Load(); n > 0 {
			all[outcome] = n
		}
	}
	return all
}
