package live

import (
	"errors"
	"math"
	"time"

	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/models"
)

// Shard is one shard of a campaign in an event.
type Shard struct {
	models.ShardFigures

	Status models.Status `json:"status" enum:"open,paused,closed,not_loaded,away" doc:"not_loaded: MySQL has all of it; away: its Redis does not answer, and the figures are MySQL's"`
}

const (
	statusNotLoaded models.Status = "not_loaded"
	statusAway      models.Status = "away"
)

// isAway reports whether the Redis of a campaign or shard is unreachable.
func isAway(w *softstate.Watched) bool {
	return w.Err != nil && !errors.Is(w.Err, lua.ErrAbsent) && !errors.Is(w.Err, lua.ErrDamaged)
}

// aggregateShards is a sharded campaign's event: the sums of its shards.
// The campaign itself has only counts of refusals in Redis.
func (h *history) aggregateShards(now time.Time, w *softstate.Watched, books *models.CampaignBooks, find lookupFunc) Event {
	c := &books.Campaign
	e := Event{
		At: models.NewTime(now), Name: c.Name, Status: c.Status, Total: c.Total,
		BooksAsOf: models.NewTime(books.Books.At), FlushMs: books.FlushMs,
	}
	e.First = h.at.IsZero()
	h.addRates(&e, now, &softstate.Watched{Answers: w.Answers})
	var out, in int64
	known := true
	for i := range books.Shards {
		of := &books.Shards[i]
		seen, past := find(of.Campaign.ID)
		out += seen.State.Out
		in += seen.State.In
		known = known && seen.Err == nil
		seen.State.Version = -1 // a move under way is no drift
		shard := past.event(now, seen, of)
		e.add(&shard)
		e.Shards = append(e.Shards, shardOf(&shard, seen, &of.Campaign))
	}
	e.MovesOpen = known && out != in
	e.AcceptedPerS = math.Round(10*e.AcceptedPerS) / 10
	e.Remaining = max(0, e.Total-e.Claimed-e.LostUnits)
	e.Low = c.LowStockAt > 0 && e.Remaining <= c.LowStockAt
	return e
}

func (e *Event) add(o *Event) {
	e.Claimed += o.Claimed
	e.Synced += o.Synced
	e.Backlog += o.Backlog
	e.Parked += o.Parked
	e.LostClaims += o.LostClaims
	e.LostUnits += o.LostUnits
	e.Drift += o.Drift
	e.AcceptedPerS += o.AcceptedPerS
	e.BacklogAgeMs = max(e.BacklogAgeMs, o.BacklogAgeMs)
	e.InRedis = e.InRedis || o.InRedis
}

func shardOf(e *Event, w *softstate.Watched, c *models.Campaign) Shard {
	_, number := models.SplitShardID(c.ID)
	s := Shard{
		ShardFigures: models.ShardFigures{
			Shard: number, Partition: c.Partition, Granted: c.Total, Claimed: e.Claimed, Free: e.Remaining,
			Seq: c.SyncedSeq, SyncedSeq: c.SyncedSeq,
		},
		Status: e.Status,
	}
	switch {
	case isAway(w):
		s.Status = statusAway
	case w.Err == nil:
		s.Seq = w.State.Seq
	default:
		s.Status = statusNotLoaded
	}
	return s
}
