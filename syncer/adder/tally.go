package adder

import (
	"cmp"
	"maps"
	"slices"

	"dibs/models"
	"dibs/models/event"
)

// Lot identifies a campaign of one shard (shard 0), or a shard.
type Lot struct {
	CampaignID string
	Shard      int
}

// LotOf is the lot of an event.
func LotOf(e *event.Event) Lot { return Lot{e.CampaignID, e.Shard} }

// ID is the lot's id, as models.ShardID makes it.
func (l Lot) ID() string { return models.ShardID(l.CampaignID, l.Shard) }

// Compare orders lots by campaign, then by shard.
func (l Lot) Compare(o Lot) int {
	return cmp.Or(cmp.Compare(l.CampaignID, o.CampaignID), cmp.Compare(l.Shard, o.Shard))
}

// Tally is the sum of some events of a lot.
type Tally struct {
	Units, Claims     int64
	FirstSeq, LastSeq int64
	FirstMs           int64 // time of the earliest claim, since 1970

	Moved int64 // units added to the lot by credits, less debits
}

// Add adds a claim, a debit or a credit.
func (t *Tally) Add(e *event.Event) {
	switch e.Type {
	case event.UnitsDebited:
		t.Merge(&Tally{Moved: -e.Quantity})
	case event.UnitsCredited:
		t.Merge(&Tally{Moved: e.Quantity})
	default:
		t.Merge(&Tally{Units: e.Quantity, Claims: 1, FirstSeq: e.Seq, LastSeq: e.Seq, FirstMs: e.At.UnixMilli()})
	}
}

// Merge adds another sum of the lot.
func (t *Tally) Merge(o *Tally) {
	t.Moved += o.Moved
	if o.Claims == 0 {
		return
	}
	if t.Claims == 0 || o.FirstSeq < t.FirstSeq {
		t.FirstSeq = o.FirstSeq
	}
	if t.Claims == 0 || o.FirstMs < t.FirstMs {
		t.FirstMs = o.FirstMs
	}
	t.LastSeq = max(t.LastSeq, o.LastSeq)
	t.Units += o.Units
	t.Claims += o.Claims
}

// Sums are tallies by lot.
type Sums map[Lot]*Tally

// Of returns a lot's tally, and adds one without sums at first.
func (s Sums) Of(lot Lot) *Tally {
	if s[lot] == nil {
		s[lot] = &Tally{}
	}
	return s[lot]
}

// Lots returns the lots in order.
func (s Sums) Lots() []Lot { return slices.SortedFunc(maps.Keys(s), Lot.Compare) }
