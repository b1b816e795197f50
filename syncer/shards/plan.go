package shards

import (
	"errors"

	"dibs/lua"
	"dibs/models"
)

// snapshot is what Redis holds of the lots of a campaign, as it was seen: its shards in order, and its reserve behind them.
type snapshot struct {
	campaign *models.Campaign
	views    []lua.ShardView

	isDry  bool // the packets of the reserve are not released
	isSlow bool // debits wait for the disk for long
}

// verb is what is to be done next.
type verb int

const (
	verbEnough  verb = iota // nothing: the units are there
	verbLoad                // Redis lacks the lot
	verbMove                // units go from one lot to another; 0 units only end what is between the two
	verbProve               // read again: if no unit came, the campaign has fewer than are asked for
	verbBlocked             // nothing: a lot does not answer that may have the units
)

// step is the next step for a need. Lots are places in a snapshot.
type step struct {
	verb     verb
	from, to int // a load is of to
	units    int64
}

// number is the number of the lot at a place.
func (p *snapshot) number(at int) int {
	if at == len(p.views)-1 {
		return models.ReserveLot
	}
	return at + 1
}

// at is the place of a lot.
func (p *snapshot) at(number int) int { return min(number, len(p.views)) - 1 }

// lot is the campaign of the lot at a place, as calls of Redis name it.
func (p *snapshot) lot(at int) *models.Campaign {
	return &models.Campaign{ID: models.ShardID(p.campaign.ID, p.number(at)), Kind: p.campaign.Kind}
}

// free is how many units others can have from a lot.
func (p *snapshot) free(at int) int64 {
	if v := &p.views[at]; v.Err == nil && (!p.isDry || p.number(at) != models.ReserveLot) {
		return v.Free()
	}
	return 0
}

// inFlight are the units that a lot has debited for another and that were not credited. Below 0 the giver forgot what it debited.
func (p *snapshot) inFlight(from, to int) int64 {
	if p.views[from].Err != nil || p.views[to].Err != nil {
		return 0
	}
	return p.views[from].Out[p.number(to)] - p.views[to].In[p.number(from)]
}

// plan decides on the next step by what was seen, and on nothing else. A step that was decided by a snapshot that is out of date does no
// harm: each is taken only where the lots are as they were seen.
func plan(p *snapshot, need models.Need) step {
	to := p.at(need.Shard)
	v := &p.views[to]
	switch {
	case v.Err != nil && !isAway(v.Err):
		return step{verb: verbLoad, to: to}
	case v.Err != nil:
		return step{verb: verbBlocked}
	}
	lack := need.Units + v.Lacks() - v.Free()
	if lack <= 0 {
		return step{verb: verbEnough}
	}
	for from := range p.views {
		if p.inFlight(from, to) > 0 {
			return step{verb: verbMove, from: from, to: to}
		}
	}
	reserve := len(p.views) - 1
	if to != reserve {
		if err := p.views[reserve].Err; err != nil && !isAway(err) {
			return step{verb: verbLoad, to: reserve}
		}
		if has := p.free(reserve); has > 0 && (has >= lack || need.Ahead) {
			return step{verb: verbMove, from: reserve, to: to, units: p.grantOf(need, lack)}
		}
	}
	if need.Ahead {
		return p.evenOut(to)
	}
	return p.gather(to, lack)
}

// gather is the next step where the reserve does not have what a lot lacks: it gathers it from all other lots. Units that come too late for
// who waits are in the reserve then, where whoever asks next has them at once.
func (p *snapshot) gather(needs int, lack int64) step {
	to := len(p.views) - 1
	if p.views[to].Err != nil {
		to = needs
	}
	elsewhere := int64(0)
	isBlocked := false
	for i := range p.views {
		switch err := p.views[i].Err; {
		case err != nil && !isAway(err):
			return step{verb: verbLoad, to: i}
		case err != nil:
			isBlocked = true
		case i != needs:
			elsewhere += p.free(i)
		}
		for j := range p.views {
			if p.inFlight(i, j) != 0 {
				return step{verb: verbMove, from: i, to: j}
			}
		}
	}
	switch from := p.richest(needs, to); {
	case elsewhere >= lack:
		if to != needs {
			lack -= p.free(to)
		}
		return step{verb: verbMove, from: from, to: to, units: p.recallOf(from, lack)}
	case isBlocked:
		return step{verb: verbBlocked}
	}
	return step{verb: verbProve}
}

// isAway reports whether nothing can be said of a lot now.
func isAway(err error) bool {
	return err != nil && !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrDamaged)
}

// grantOf is how many units go out of the reserve: what is lacking, or more while there is more. Grants shrink as the reserve does, so that
// the last units don't lie with a shard that no one asks.
func (p *snapshot) grantOf(need models.Need, lack int64) int64 {
	has := p.free(len(p.views) - 1)
	return min(has, max(lack, 2*need.Pace, has/int64(2*(len(p.views)-1))))
}

// fewLeft is how many units are not left behind in a lot: the last ones lie where they are asked for.
const fewLeft = 16

// recallOf is how many units are asked of a lot: what is lacking, or half of what it has, or the last few. If debits wait for a slow disk
// it is seven eighths: with half, a campaign took four such waits to sell its last units.
func (p *snapshot) recallOf(from int, lack int64) int64 {
	free := p.free(from)
	if free <= fewLeft {
		return free
	}
	keeps := free / 2
	if p.isSlow {
		keeps = free / 8
	}
	return min(free, max(lack, free-keeps))
}

// with is a step and what is to be done at the same time: as someone waits for units, one of each lot that has some. Each may have to wait
// for a disk.
func (p *snapshot) with(s step, need models.Need) []step {
	all := []step{s}
	if s.verb != verbMove || need.Ahead {
		return all
	}
	for from := range p.views {
		if s.units == 0 { // all that is in flight
			for to := range p.views {
				if other := (step{verb: verbMove, from: from, to: to}); other != s && p.inFlight(from, to) != 0 {
					all = append(all, other)
				}
			}
			continue
		}
		if p.number(s.from) != models.ReserveLot && from != s.from && from != s.to && from != p.at(need.Shard) && p.free(from) > 0 {
			all = append(all, step{verb: verbMove, from: from, to: s.to, units: p.recallOf(from, 0)})
		}
	}
	return all
}

// richer is how many times the free units of a shard another must have to give some away before anybody waits for them.
const richer = 4

// evenOut moves units to a shard before anybody waits for them, from one that has far more.
func (p *snapshot) evenOut(to int) step {
	from := p.richest(to, to)
	if from < 0 {
		return step{verb: verbEnough}
	}
	if has := p.free(from); has <= fewLeft || has < richer*max(1, p.free(to)) {
		return step{verb: verbEnough}
	}
	return step{verb: verbMove, from: from, to: to, units: (p.free(from) + 1) / 2}
}

// richest is the lot with the most free units, other than two; -1 is none.
func (p *snapshot) richest(other, another int) (at int) {
	at = -1
	most := int64(0)
	for i := range p.views {
		if n := p.free(i); i != other && i != another && n > most {
			at = i
			most = n
		}
	}
	return at
}
