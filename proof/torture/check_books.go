package torture

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

// checkOrder goes through the claims in the order that Redis gave them: no seq twice, no hole, at each instant no more units than total
// and no user above a limit (I1, I3, I7).
func (rd *round) checkOrder(l *ledger) {
	c := l.campaign
	lost := len(rd.losses) > 0
	users := map[string]*held{}
	held := newHeld(l.rows)
	byUser := map[string][]row{}
	for i := range l.rows {
		byUser[l.rows[i].user] = append(byUser[l.rows[i].user], l.rows[i])
	}
	for user, rows := range byUser {
		users[user] = newHeld(rows)
	}
	if !lost && !rd.checkSeq(l) {
		return
	}
	for _, r := range l.inTime() {
		from := r.at
		if rd.lied { // that is the latest it can be
			from = rd.open.Add(-time.Hour)
		}
		most := maxOf(c.may(&c.totals, from, r.at.Add(time.Millisecond)))
		if units := held.take(r); !lost && units > most {
			rd.brokenf("I1: %s: %d units were held of %d with seq %d at %s", c.id, units, most, r.seq, clock(r.at))
		}
		limits := c.may(&c.limits, from, r.at.Add(time.Millisecond))
		if units := users[r.user].take(r); !lost && !slices.Contains(limits, 0) && units > maxOf(limits) {
			rd.brokenf("I3: %s: %s held %d units of %d with seq %d", c.id, r.user, units, limits, r.seq)
		} else if !lost && c.perDay > 0 && units > c.perDay {
			rd.brokenf("I3: %s: %s held %d units of %d a day with seq %d", c.id, r.user, units, c.perDay, r.seq)
		}
		if why := c.surelyShut(from, r.at.Add(time.Millisecond)); !lost && why != "" {
			rd.brokenf("%s %s when claim %s was made at %s", c.id, why, r.id, clock(r.at))
		}
	}
	rd.checkExtra(l)
	units := held.live(l.rows)
	most := c.total()
	if units > maxOf(c.may(&c.totals, rd.open.Add(-time.Hour), time.Now())) {
		rd.brokenf("I1: %s: %d units are sold of %d", c.id, units, most)
	}
}

// checkSeq: in each shard seq begins with 1 and has no gap, but for claims of mode mysql that nobody was told of, and a user's claims are all of one shard.
func (rd *round) checkSeq(l *ledger) bool {
	before := map[int]int64{}
	for i := range l.rows {
		r := &l.rows[i]
		before[r.shard]++
		if rd.vanished {
			before[r.shard] = max(before[r.shard], r.seq)
		}
		if r.seq != before[r.shard] {
			rd.brokenf("I7: %s: claim %s has seq %d, the one before it in shard %d %d", l.id, r.id, r.seq, r.shard, before[r.shard]-1)
			return false
		}
		shard := 0
		if l.shards > 1 {
			shard = models.ShardOfUser(r.user, l.shards)
		}
		if r.shard != shard {
			rd.brokenf("I3: %s: claim %s of %s is of shard %d, the user's is %d", l.id, r.id, r.user, r.shard, shard)
		}
	}
	return true
}

// inTime are the rows by the time of their claims; those of one shard in their order.
func (l *ledger) inTime() (all []*row) {
	for i := range l.rows {
		all = append(all, &l.rows[i])
	}
	if l.shards > 1 {
		slices.SortStableFunc(all, func(a, b *row) int { return a.at.Compare(b.at) })
	}
	return all
}

// held adds up units in the order of claims, less what was given back by then.
type held struct {
	units int64
	back  []row // by the time of their release
	next  int
}

func newHeld(rows []row) *held {
	h := &held{}
	for i := range rows {
		if rows[i].back() {
			h.back = append(h.back, rows[i])
		}
	}
	slices.SortFunc(h.back, func(a, b row) int { return a.resolved.Time.Compare(b.resolved.Time) })
	return h
}

// take adds a claim and returns the least units that were held then.
func (h *held) take(r *row) int64 {
	h.units += r.quantity
	for h.next < len(h.back) && !h.back[h.next].resolved.Time.After(r.at.Add(blur)) {
		h.units -= h.back[h.next].quantity
		h.next++
	}
	return h.units
}

func (*held) live(rows []row) (units int64) {
	for i := range rows {
		if !rows[i].back() {
			units += rows[i].quantity
		}
	}
	return units
}

// checkBooks: counters, flushes, rows and what the API says agree; nothing is parked, and nothing left over where all was wanted (I5, I6).
func (rd *round) checkBooks(ctx context.Context, l *ledger) error {
	var total, claimed, remaining, synced, flushed, parked, lost, lostUnits, given int64
	err := rd.w.db.QueryRowContext(ctx, `SELECT total, claimed, remaining, synced_seq, lost_claims, lost_units,
		(SELECT COALESCE(SUM(given_up_claims), 0) FROM lots WHERE campaign_id = c.id),
		(SELECT COALESCE(SUM(units), 0) FROM stock_flushes WHERE campaign_id = c.id),
		(SELECT COUNT(*) FROM parked_events WHERE SUBSTRING_INDEX(campaign_id, '#', 1) = c.id AND discarded_at IS NULL)
		FROM campaigns c WHERE id = ?`, l.id).
		Scan(&total, &claimed, &remaining, &synced, &lost, &lostUnits, &given, &flushed, &parked)
	if err != nil {
		return wrap(err)
	}
	var units, ever int64
	for i := range l.rows {
		ever += l.rows[i].quantity
		if !l.rows[i].back() {
			units += l.rows[i].quantity
		}
	}
	rd.report.GivenUp += given
	if l.packets && l.shards > 1 {
		rd.report.GivenUpSharded += given
	}
	rd.equal("I6", l.id, "claimed in MySQL and the units of live rows", claimed, units)
	rd.equal("I6", l.id, "remaining in MySQL and total less claimed and lost", remaining, max(0, total-claimed-lostUnits))
	rd.equal("I7", l.id, "synced_seq and rows", synced, int64(len(l.rows)))
	rd.equal("I2", l.id, "parked claims and none", parked, 0)
	if len(rd.losses) == 0 {
		rd.equal("I2", l.id, "claims that are lost or given up and none", lost+given, 0)
		rd.equal("I6", l.id, "units of stock_flushes and of all rows", flushed, ever)
	}
	if !l.closed && !strings.HasSuffix(l.id, endless) && units+lostUnits < total {
		rd.brokenf("I5: %s: %d of %d units were sold, %d are lost, and more was wanted", l.id, units, total, lostUnits)
	}
	return nil
}

func (rd *round) equal(invariant, id, what string, a, b int64) {
	if a != b {
		rd.brokenf("%s: %s: %s: %d and %d", invariant, id, what, a, b)
	}
}

// checkPackets: each packet has one owner or was returned, and the accounts say so to the cent (I10).
func (rd *round) checkPackets(ctx context.Context, l *ledger) error {
	var in, owned, returned, owners, due int64
	err := rd.w.each(ctx, `SELECT p.id, p.amount, COALESCE(p.claim_id, ''), p.returned_at IS NOT NULL,
		(SELECT COUNT(*) FROM account_entries e WHERE e.claim_id = p.claim_id AND e.amount = p.amount AND e.user_id = p.user_id)
		FROM packets p WHERE p.campaign_id = ?`, []any{l.id}, func(scan func(...any) error) error {
		var id, claim string
		var amount, credits int64
		var back bool
		if err := scan(&id, &amount, &claim, &back, &credits); err != nil {
			return err
		}
		in += amount
		switch {
		case claim != "" && back:
			rd.brokenf("I10: %s: packet %s has an owner and was returned", l.id, id)
		case claim != "":
			owned += amount
			owners++
			if credits == 0 {
				due += amount
				rd.report.Uncredited++
			}
			if r := l.byID[claim]; r == nil || r.packet.String != id || r.amount.Int64 != amount ||
				credits != 1 && (credits != 0 || len(rd.losses) == 0) {
				rd.brokenf("I10: %s: packet %s of %d is owned by claim %s, whose row is %+v and which has %d credits",
					l.id, id, amount, claim, r, credits)
			}
		case back:
			returned += amount
		}
		return nil
	})
	if err != nil {
		return err
	}
	rd.equal("I10", l.id, "packets with an owner and rows", owners, int64(len(l.rows)))
	var credited, ghosts int64
	if err := rd.w.db.QueryRowContext(ctx, `SELECT COALESCE(SUM(IF(e.user_id = ? OR c.id IS NOT NULL, e.amount, 0)), 0),
		COALESCE(SUM(e.user_id <> ? AND c.id IS NULL), 0)
		FROM account_entries e LEFT JOIN `+everyClaim+` c ON c.id = e.claim_id WHERE e.campaign_id = ?`,
		sender(l.campaign), sender(l.campaign), l.id).
		Scan(&credited, &ghosts); err != nil {
		return wrap(err)
	}
	rd.report.Ghosts += ghosts
	rd.equal("I10", l.id, "cents credited and cents owned or returned", credited+due, owned+returned)
	if len(rd.losses) == 0 {
		rd.equal("I10", l.id, "credits without a claim and none", ghosts, 0)
	}
	var withheld int64 // packets that are lost stay where they are
	if err := rd.w.db.QueryRowContext(ctx, "SELECT lost_units FROM campaigns WHERE id = ?", l.id).Scan(&withheld); err != nil {
		return wrap(err)
	}
	if l.closed && withheld == 0 {
		rd.equal("I10", l.id, "cents put in and cents owned or returned", in, owned+returned)
	}
	return nil
}

// checkAccounts: an account holds the sum of its entries, to the cent.
func (rd *round) checkAccounts(ctx context.Context) error {
	var wrong int64
	err := rd.w.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM accounts a WHERE (a.amount, a.entries) <>
		(SELECT COALESCE(SUM(e.amount), 0), COUNT(*) FROM account_entries e
		 WHERE e.user_id = a.user_id AND e.currency = a.currency)`).Scan(&wrong)
	rd.equal("I10", "accounts", "accounts that differ from their entries and none", wrong, 0)
	return wrap(err)
}

// checkRefusals: no one was answered that a campaign is sold out, paused or used up by him when it surely was not.
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

// refusedWrong says what is wrong with a no; "" is nothing.
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

// mostHeld is the most units that may have been held at some time of a stretch, by a user or by all.
func (l *ledger) mostHeld(from, till time.Time, user string) (units int64) {
	for i := range l.rows {
		r := &l.rows[i]
		if r.at.After(till.Add(blur)) || user != "" && r.user != user {
			continue
		}
		if r.mayHoldAfter(from) {
			units += r.quantity
		}
	}
	return units
}

// entry is an event and when Redis wrote it.
type entry struct {
	models.Event

	written time.Time
}

// readAway reads what the group that is away has not read, and acknowledges it.
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
			e, err := models.DecodeEvent([]byte(payload))
			id, err2 := lua.ParseEntryID(message.ID)
			if err := errors.Join(err, err2); err != nil {
				return events, wrap(err)
			}
			events = append(events, entry{e, time.UnixMilli(int64(id.Ms))})
		}
	}
}
