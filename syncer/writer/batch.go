package writer

import (
	"cmp"
	"slices"
	"time"
)

// batch is what one flush writes: rows sorted by id, no id twice, and their sums by campaign or shard.
type batch struct {
	rows  []*row
	sums  map[string]*tally
	since time.Time // when the oldest claim came
}

// gather makes a batch of cells. When a claim is in there twice, the sums of the cells count it twice and are not used.
func gather(cells []*cell) *batch {
	b := &batch{sums: make(map[string]*tally)}
	for _, c := range cells {
		b.since = earlier(b.since, c.since)
		for i := range c.rows {
			b.rows = append(b.rows, &c.rows[i])
		}
		for id, sum := range c.sums {
			total := b.sums[id]
			if total == nil {
				total = &tally{}
				b.sums[id] = total
			}
			total.merge(*sum)
		}
	}
	submitted := len(b.rows)
	slices.SortFunc(b.rows, byID)
	b.rows = slices.CompactFunc(b.rows, sameClaim)
	if len(b.rows) < submitted {
		b.sums = sumOf(b.rows)
	}
	return b
}

// byID sorts by id, which is the order of the primary key; equal claims end up side by side.
func byID(a, b *row) int {
	if c := cmp.Compare(a.event.ID, b.event.ID); c != 0 {
		return c
	}
	x := &a.event
	y := &b.event
	return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Quantity, y.Quantity),
		cmp.Compare(x.CampaignID, y.CampaignID), cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.UserID, y.UserID))
}

// sameClaim reports whether two rows are the same claim. Different claims with the same id are left to resolveConflicts.
func sameClaim(a, b *row) bool {
	x := &a.event
	y := &b.event
	return x.ID == y.ID && x.LotID() == y.LotID() && x.Seq == y.Seq && x.UserID == y.UserID && x.Quantity == y.Quantity
}

func sumOf(rows []*row) map[string]*tally {
	sums := make(map[string]*tally)
	for _, r := range rows {
		id := r.event.LotID()
		if sums[id] == nil {
			sums[id] = &tally{}
		}
		sums[id].add(&r.event)
	}
	return sums
}
