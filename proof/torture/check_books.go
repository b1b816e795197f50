package torture

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models/event"
)

// checkOrder replays the claims in Redis' order: no seq twice, no gap, and at
// no time more units than total or a user above a limit (I1, I3, I7).
func (rd *round) checkOrder(l *ledger) {
	c := l.campaign
	lost := l.Lossy
	users := heldBy(l.rows, func(r *row) string { return r.User })
	held := newHeld(l.rows)
	if !lost && !l.Sequence(l.shards, rd.vanished, rd.brokenf) {
		return
	}
	for _, r := range l.inTime() {
		from := r.at
		if rd.lied { // the latest possible time
			from = rd.open.Add(-time.Hour)
		}
		most := maxOf(c.may(&c.totals, from, r.at.Add(time.Millisecond)))
		if units := held.take(r); !lost && units > most {
			rd.brokenf("I1: %s: %d units were held of %d with seq %d at %s", c.id, units, most, r.Seq, clock(r.at))
		}
		limits := c.may(&c.limits, from, r.at.Add(time.Millisecond))
		if units := users[r.User].take(r); !lost && !slices.Contains(limits, 0) && units > maxOf(limits) {
			rd.brokenf("I3: %s: %s held %d units of %d with seq %d", c.id, r.User, units, limits, r.Seq)
		} else if !lost && c.perDay > 0 && units > c.perDay {
			rd.brokenf("I3: %s: %s held %d units of %d a day with seq %d", c.id, r.User, units, c.perDay, r.Seq)
		}
		if why := c.surelyShut(from, r.at.Add(time.Millisecond)); !lost && why != "" {
			rd.brokenf("%s %s when claim %s was made at %s", c.id, why, r.ID, clock(r.at))
		}
	}
	rd.checkExtra(l)
	if l.Live > maxOf(c.may(&c.totals, rd.open.Add(-time.Hour), time.Now())) {
		rd.brokenf("I1: %s: %d units are sold of %d", c.id, l.Live, c.total())
	}
}

// checkTimes checks that, of two claims of a shard, one answered
// before the other was requested has the lower seq (I7).
func (rd *round) checkTimes(l *ledger) {
	asked := map[string]time.Time{}
	answered := map[string]time.Time{}
	for _, one := range l.requests {
		for i := range one.tries {
			if t := &one.tries[i]; t.claim != nil {
				asked[t.claim.ID] = one.tries[0].started
				answered[t.claim.ID] = t.ended
				break
			}
		}
	}
	latest := map[int]time.Time{} // last request time of a claim, by shard
	for i := range l.rows {
		r := &l.rows[i]
		ended, known := answered[r.ID]
		if known && ended.Before(latest[r.Shard]) {
			rd.brokenf("I7: %s: claim %s, seq %d, was answered at %s, and one with a lower seq was asked for at %s", l.id, r.ID, r.Seq,
				clock(ended), clock(latest[r.Shard]))
		}
		if at := asked[r.ID]; at.After(latest[r.Shard]) {
			latest[r.Shard] = at
		}
	}
}

// inTime returns the rows by claim time; those of one shard keep their order.
func (l *ledger) inTime() (all []*row) {
	for i := range l.rows {
		all = append(all, &l.rows[i])
	}
	if l.shards > 1 {
		slices.SortStableFunc(all, func(a, b *row) int { return a.at.Compare(b.at) })
	}
	return all
}

// held sums units in claim order, less those returned by then.
type held struct {
	units int64
	back  []row // by release time
	next  int
}

func newHeld(rows []row) *held {
	h := &held{}
	for i := range rows {
		if rows[i].back() {
			h.back = append(h.back, rows[i])
		}
	}
	slices.SortFunc(h.back, func(a, b row) int { return a.resolved.Compare(b.resolved) })
	return h
}

// heldBy splits the rows by owner.
func heldBy(rows []row, owner func(r *row) string) map[string]*held {
	of := map[string][]row{}
	for i := range rows {
		of[owner(&rows[i])] = append(of[owner(&rows[i])], rows[i])
	}
	all := map[string]*held{}
	for who := range of {
		all[who] = newHeld(of[who])
	}
	return all
}

// take adds a claim and returns the least units held then.
func (h *held) take(r *row) int64 {
	h.units += r.Quantity
	for h.next < len(h.back) && !h.back[h.next].resolved.After(r.at.Add(blur)) {
		h.units -= h.back[h.next].Quantity
		h.next++
	}
	return h.units
}

// checkBooks checks that counters, flushes and rows agree, and
// no unit is left where all were wanted (I5, I6).
func (rd *round) checkBooks(l *ledger) {
	rd.report.GivenUp += l.GivenUp
	l.Counters(rd.brokenf)
	if l.isSoldOut() && l.Live+l.LostUnits < l.Total {
		rd.brokenf("I5: %s: %d of %d units were sold, %d are lost, and more was wanted", l.id, l.Live, l.Total, l.LostUnits)
	}
}

// isSoldOut reports whether the round sells all of a campaign.
func (c *campaign) isSoldOut() bool { return !c.closed && !strings.HasSuffix(c.id, endless) }

// checkRefusals checks that no refusal as sold out, paused or
// over the limit was certainly wrong.
func (rd *round) checkRefusals(l *ledger) {
	for _, one := range l.requests {
		for i := range one.tries {
			t := &one.tries[i]
			if t.claim != nil || !certain(t.code) {
				continue
			}
			if why := l.refusedWrong(one, t); why != "" {
				rd.brokenf("%s of %s was answered %s, %s to %s: %s", one.user, l.id, t.code, clock(t.started), clock(t.ended), why)
			}
		}
	}
}

// refusedWrong says what is wrong with a refusal; "" is nothing.
func (l *ledger) refusedWrong(one *request, t *try) string {
	from := t.started.Add(-cacheFor)
	switch t.code {
	case "sold_out":
		totals := l.may(&l.totals, from, t.ended)
		if most := l.mostHeld(from, t.ended, ""); most+one.quantity <= slices.Min(totals) && !l.packets {
			return "too few were taken of the total"
		}
	case "user_limit":
		most := l.mostHeld(from, t.ended, one.user)
		if !slices.ContainsFunc(l.may(&l.limits, from, t.ended), func(limit int64) bool { return limit > 0 && most+one.quantity > limit }) {
			return "the user held too few"
		}
	case "limit":
		return l.extraWrong(one, from, t.ended)
	case "user_day_limit":
		if l.perDay == 0 || l.mostHeld(from, t.ended, one.user)+one.quantity <= l.perDay {
			return "the user held too few of the day"
		}
	case "paused", "not_started", "ended", "closed":
		return l.shutWrong(t.code, from, t.ended)
	case "not_released":
		if !l.packets {
			return "it has no packets"
		}
	default:
		return "no such refusal"
	}
	return ""
}

// mostHeld returns the most units that a user, or all, may have
// held at a time in a span.
func (l *ledger) mostHeld(from, till time.Time, user string) (units int64) {
	for i := range l.rows {
		r := &l.rows[i]
		if r.at.After(till.Add(blur)) || user != "" && r.User != user {
			continue
		}
		if r.mayHoldAfter(from) {
			units += r.Quantity
		}
	}
	return units
}

// entry is an event and the time Redis wrote it.
type entry struct {
	event.Event

	written time.Time
}

// readAway reads and acknowledges what the paused group has not read.
func (w *world) readAway(ctx context.Context, partition int) (events []entry, err error) {
	stream := lua.StreamKey(partition)
	for {
		read, err := w.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: awayGroup, Consumer: "one", Streams: []string{stream, ">"}, Count: 1000, Block: -1, NoAck: true,
		}).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return events, nil
		case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"): // Redis lost it
			err = errors.Join(err, w.rdb.XGroupCreateMkStream(ctx, stream, awayGroup, "$").Err())
			return events, wrap(err)
		case err != nil:
			return events, wrap(err)
		}
		for _, message := range read[0].Messages {
			payload, _ := message.Values["payload"].(string)
			e, err := event.Decode([]byte(payload))
			id, err2 := lua.ParseEntryID(message.ID)
			if err := errors.Join(err, err2); err != nil {
				return events, wrap(err)
			}
			events = append(events, entry{e, time.UnixMilli(int64(id.Ms))})
		}
	}
}

// checkLines checks the published stock thresholds. One crossed by a claim is
// published once. One crossed by a change may be repeated by a process that
// completes it, under the same id, but there are no more ids than changes. A
// sold-out campaign must have been announced.
func (rd *round) checkLines(l *ledger, published []event.Event) {
	if l.shards > 1 {
		return // reported once all of them were read
	}
	times := map[string]int{}
	changes := map[string]bool{}
	kinds := map[event.Type]bool{}
	for i := range published {
		e := &published[i]
		times[e.ID]++
		kinds[e.Type] = true
		by, _, _ := strings.Cut(e.ID, ":")
		switch {
		case l.ByID[by] == nil:
			changes[by] = true
		case times[e.ID] > 1:
			rd.brokenf("%s: %s is published %d times by claim %s", l.id, e.Type, times[e.ID], by)
		}
	}
	if len(changes) > len(l.totals) {
		rd.brokenf("%s: %d changes crossed a line, %d were made", l.id, len(changes), len(l.totals))
	}
	if l.isSoldOut() && (!kinds[event.CampaignSoldOut] || l.lowAt > 0 && !kinds[event.CampaignLowStock]) {
		rd.brokenf("%s is sold out, and not each line was published: %v", l.id, kinds)
	}
}
