package shards

import (
	"errors"
	"strings"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// picture is a campaign as it was seen: the books of MySQL first, and then Redis, which is not behind them unless it went back.
type picture struct {
	reserve int64
	owed    int64             // units that were sold twice: a reserve below 0
	books   []models.Campaign // by shard
	views   []lua.ShardView   // by shard

	unreleased int64 // packets that no shard has, beside the reserve: their time of release has not come
}

// verb is what is to be done next.
type verb int

const (
	verbEnough  verb = iota // nothing: the units are there
	verbLoad                // Redis lacks the shard, or holds something else than MySQL knows
	verbFinish              // the open move of the shard
	verbBegin               // a move
	verbProve               // look again: if no unit came, the campaign has fewer than are asked for
	verbBlocked             // nothing: a shard does not answer that may have the units
)

// step is the next step for a need.
type step struct {
	verb  verb
	shard int // from 1
	kind  models.MoveKind
	units int64
}

// plan decides on the next step by what was seen, and on nothing else. A step that was decided by a picture that is out of date does no
// harm: each is taken only where the books are as they were seen.
func plan(p *picture, need models.Need) step {
	lack := need.Units - p.reserve
	if need.Shard > 0 {
		if s, found := p.mend(need.Shard); found {
			return s
		}
		v := &p.views[need.Shard-1]
		if v.Err != nil {
			return step{verb: verbBlocked, shard: need.Shard}
		}
		lack = need.Units - v.Free()
		if lack > 0 && p.reserve > 0 && (p.reserve >= lack || need.Ahead) {
			return step{verbBegin, need.Shard, models.MoveGrant, p.grantOf(need, lack)}
		}
	}
	switch {
	case lack <= 0:
		return step{verb: verbEnough}
	case need.Ahead:
		return p.evenOut(need.Shard)
	}
	return p.gather(need, lack)
}

// gather is the next step where the reserve does not have what is lacking.
func (p *picture) gather(need models.Need, lack int64) step {
	elsewhere := p.reserve
	isBlocked := false
	if need.Shard == 0 {
		elsewhere = 0
	}
	for i := range p.views {
		shard := i + 1
		if s, found := p.mend(shard); found {
			return s
		}
		switch {
		case p.views[i].Err != nil:
			isBlocked = true
		case shard != need.Shard:
			elsewhere += p.views[i].Free()
		}
	}
	switch shard := p.richest(need.Shard); {
	case elsewhere >= lack:
		return step{verbBegin, shard, models.MoveRecall, p.recallOf(need, shard, lack)}
	case isBlocked:
		return step{verb: verbBlocked}
	}
	return step{verb: verbProve}
}

// lacksMoves reports whether MySQL does not know a move that a shard has taken, or has a shard that waits for its repair after such a loss.
func (p *picture) lacksMoves() bool {
	for i := range p.books {
		if isAhead(&p.views[i], &p.books[i]) || isRestored(&p.books[i]) {
			return true
		}
	}
	return false
}

// isAhead reports whether a shard in Redis has taken a move that MySQL does not know.
func isAhead(v *lua.ShardView, c *models.Campaign) bool {
	return v.Epoch == c.Epoch && v.Moves > c.MoveNo
}

// isRestored reports whether a shard waits for its repair because MySQL was restored.
func isRestored(c *models.Campaign) bool {
	return c.Residency == models.ResidencyLost && strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack)
}

// mend tells whether a shard must be loaded first, or its open move be completed. One that does not answer is left alone.
func (p *picture) mend(shard int) (step, bool) {
	v := &p.views[shard-1]
	c := &p.books[shard-1]
	switch {
	case isAway(v.Err):
		return step{}, false
	case v.Err != nil || v.Epoch != c.Epoch || v.Moves < c.MovedNo:
		return step{verb: verbLoad, shard: shard}, true
	case c.MoveNo != c.MovedNo || v.Moves > c.MoveNo: // the latter was begun since
		return step{verb: verbFinish, shard: shard}, true
	}
	return step{}, false
}

// isAway tells whether nothing can be said of a shard now.
func isAway(err error) bool {
	return err != nil && !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrDamaged)
}

// grantOf is how many units a grant takes out of the reserve: what is lacking, or more while there is more. Grants shrink as the reserve
// does, so that the last units don't lie with a shard that nobody asks.
func (p *picture) grantOf(need models.Need, lack int64) int64 {
	return min(p.reserve, max(lack, 2*need.Pace, p.reserve/int64(2*len(p.views))))
}

// fewLeft is how many units a recall does not leave behind: the last ones lie where anybody can have them without another recall.
const fewLeft = 16

// recallOf is how many units a recall asks for: what is lacking beside the reserve, or half of what the shard has, or the last few.
func (p *picture) recallOf(need models.Need, shard int, lack int64) int64 {
	free := p.views[shard-1].Free()
	if need.Shard > 0 {
		lack -= p.reserve
	}
	if free <= fewLeft {
		return free
	}
	return min(free, max(lack, (free+1)/2))
}

// with is a step and what is to be done at the same time: all open moves, or, as somebody waits for a recall, one of each shard that has
// units. Each recall may have to wait for a disk.
func (p *picture) with(s step, need models.Need) []step {
	all := []step{s}
	if s.verb == verbFinish {
		for i := range p.books {
			if other, found := p.mend(i + 1); found && other.verb == verbFinish && other != s {
				all = append(all, other)
			}
		}
	}
	if s.verb != verbBegin || s.kind != models.MoveRecall || need.Ahead {
		return all
	}
	for i := range p.views {
		v := &p.views[i]
		c := &p.books[i]
		shard := i + 1
		if shard == s.shard || shard == need.Shard || v.Err != nil || v.Free() == 0 || c.MoveNo != c.MovedNo {
			continue
		}
		all = append(all, step{verbBegin, shard, models.MoveRecall, p.recallOf(need, shard, 0)})
	}
	return all
}

// richer is how many times the free units of a shard another must have to give some away before anybody waits for them.
const richer = 4

// evenOut moves units to a shard before anybody waits for them, from one that has far more.
func (p *picture) evenOut(shard int) step {
	from := p.richest(shard)
	if from == 0 || p.books[from-1].MoveNo != p.books[from-1].MovedNo {
		return step{verb: verbEnough}
	}
	if has := p.views[from-1].Free(); has <= fewLeft || has < richer*max(1, p.views[shard-1].Free()) {
		return step{verb: verbEnough}
	}
	return step{verbBegin, from, models.MoveRecall, (p.views[from-1].Free() + 1) / 2}
}

// richest is the shard with the most free units, other than one; 0 is none.
func (p *picture) richest(other int) (shard int) {
	most := int64(0)
	for i := range p.views {
		if v := &p.views[i]; v.Err == nil && i+1 != other && v.Free() > most {
			shard = i + 1
			most = v.Free()
		}
	}
	return shard
}
