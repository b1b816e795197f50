package apply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"dibs/models/event"
	"dibs/syncer/adder"
)

// Batch is what one transaction applies.
type Batch struct {
	Streams []adder.Taken
	Rows    []*event.Raw // in the order of the primary key
	Sums    adder.Sums   // of all rows
	Since   time.Time    // arrival of the oldest entry

	Locked  map[adder.Lot]bool // lots whose sums wait already
	Careful bool               // skip locked lots instead of waiting for them

	lots   []*event.Raw // loads, evictions and the like, in the order of the stream
	events []*event.Raw // events from the outbox
	whole  bool         // write all or nothing
}

// Gather makes a batch of what a flush takes.
func Gather(streams []adder.Taken) *Batch {
	b := &Batch{Streams: streams, Sums: make(adder.Sums)}
	for i := range streams {
		s := &streams[i]
		if b.Since.IsZero() || s.Since.Before(b.Since) {
			b.Since = s.Since
		}
		for _, read := range s.Reads {
			for j := range read.Events {
				switch e := &read.Events[j]; {
				case e.Unreadable != "" || adder.HasRow(&e.Event):
					b.Rows = append(b.Rows, e)
				case e.IsOfLot():
					b.lots = append(b.lots, e)
				case e.Type != event.PartitionGeneration:
					b.events = append(b.events, e)
				}
			}
		}
		for lot, sum := range s.Sums {
			b.Sums.Of(lot).Merge(sum)
		}
	}
	slices.SortFunc(b.Rows, byID)
	return b
}

// Of makes a batch of events that are in no stream. Those without a row
// are left out.
func Of(events ...event.Event) (*Batch, error) {
	var rows []*event.Raw
	for i := range events {
		if !adder.HasRow(&events[i]) {
			continue
		}
		payload, err := json.Marshal(&events[i]) // in case it is parked
		if err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
		rows = append(rows, &event.Raw{Event: events[i], Payload: payload})
	}
	slices.SortFunc(rows, byID)
	return &Batch{Rows: rows, Sums: sumOf(rows)}, nil
}

// HasLoad reports whether a lot was loaded.
func (b *Batch) HasLoad() bool {
	return slices.ContainsFunc(b.lots, func(e *event.Raw) bool { return e.Type == event.LotLoaded })
}

func byID(a, b *event.Raw) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.CampaignID, b.CampaignID))
}

func sumOf(rows []*event.Raw) adder.Sums {
	sums := make(adder.Sums)
	for _, r := range rows {
		sums.Of(adder.LotOf(&r.Event)).Add(&r.Event)
	}
	return sums
}
