package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dibs/lua"
	"dibs/models"
)

// ErrParked says that a repair would give units back that somebody was told are theirs: their claims are parked.
var ErrParked = errors.New("syncer: parked claims are in the way")

const (
	// parkedMost is how many parked events of a campaign are looked at; with more of them nothing about it is said.
	parkedMost = 10_000
	// parkedAtOnce is how many of them are looked up by one statement.
	parkedAtOnce = 500
	// namedMost is how many of them are named one by one.
	namedMost = 10
)

// parkedClaim is a claim that Redis accepted and whose event is parked.
type parkedClaim struct {
	id      string // of the row in parked_events
	event   models.Event
	payload []byte
	reason  string
	written bool // it has its row: whoever wrote that died before the event was off the list
	counts  bool // its id and its place are free: it is a claim like any other, but for its row
}

// past is the claim on its way back into Redis.
func (p *parkedClaim) past() *lua.ClaimRecord {
	e := &p.event
	past := &lua.ClaimRecord{
		ID: []byte(e.ID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq, Quantity: e.Quantity, At: e.At.Time, Live: true,
		PacketID: []byte(e.PacketID),
	}
	if e.Amount != nil {
		past.Amount = *e.Amount
	}
	return past
}

// String names it for people.
func (p *parkedClaim) String() string {
	return fmt.Sprintf("claim %s (seq %d, %d units of user %s) is parked: %s",
		p.event.ID, p.event.Seq, p.event.Quantity, p.event.UserID, p.reason)
}

// parked are the parked claims of a campaign that nobody gave up. Those that count are claims of the campaign though they have
// no row: they hold their units, their user's limits and their place.
type parked struct {
	list          []parkedClaim
	claims, units int64 // of those that count
}

// readParked reads the parked claims of a campaign.
func readParked(ctx context.Context, q querier, campaignID string) (*parked, error) {
	all := &parked{}
	n := 0
	err := scanAll(ctx, q, "SELECT id, reason, payload FROM parked_events WHERE campaign_id = ? AND discarded_at IS NULL ORDER BY id LIMIT ?",
		[]any{campaignID, parkedMost + 1}, func(scan func(...any) error) error {
			var p parkedClaim
			n++
			if err := scan(&p.id, &p.reason, &p.payload); err != nil {
				return err
			}
			var err error
			p.event, err = models.DecodeEvent(p.payload)
			if err == nil && p.event.Type == models.EventClaimAccepted && p.event.CampaignID == campaignID {
				all.list = append(all.list, p)
			}
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("syncer: parked events of %s: %w", campaignID, err)
	}
	if n > parkedMost {
		return nil, fmt.Errorf("%w: %s has more than %d", ErrParked, campaignID, parkedMost)
	}
	if err := all.settle(ctx, q, campaignID); err != nil {
		return nil, fmt.Errorf("syncer: parked events of %s: %w", campaignID, err)
	}
	return all, nil
}

// settle finds out who has a row, and who counts.
func (all *parked) settle(ctx context.Context, q querier, campaignID string) error {
	rows := map[string]known{}
	taken := map[int64]bool{}
	for chunk := range slices.Chunk(all.list, parkedAtOnce) {
		args := []any{}
		for i := range chunk {
			args = append(args, chunk[i].event.ID)
		}
		marks := "(?" + strings.Repeat(",?", len(chunk)-1) + ")"
		args = append(args, campaignID)
		for i := range chunk {
			args = append(args, chunk[i].event.Seq)
		}
		err := scanAll(ctx, q, "SELECT id, campaign_id, seq, user_id, quantity FROM claims WHERE id IN "+marks+
			" UNION SELECT id, campaign_id, seq, user_id, quantity FROM claims WHERE campaign_id = ? AND shard = 0 AND seq IN "+marks,
			args, func(scan func(...any) error) error {
				var k known
				err := scan(&k.id, &k.campaignID, &k.seq, &k.userID, &k.quantity)
				rows[k.id] = k
				if k.campaignID == campaignID {
					taken[k.seq] = true
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	for i := range all.list {
		p := &all.list[i]
		k, there := rows[p.event.ID]
		p.written = there && k.is(&row{event: p.event})
		if p.counts = !there && !taken[p.event.Seq] && lua.CheckPast(p.past()) == nil; p.counts {
			taken[p.event.Seq] = true
			all.claims, all.units = all.claims+1, all.units+p.event.Quantity
		}
	}
	return nil
}

// bySeq are those that count, in order.
func (all *parked) bySeq() []*parkedClaim {
	var some []*parkedClaim
	for i := range all.list {
		if all.list[i].counts {
			some = append(some, &all.list[i])
		}
	}
	slices.SortFunc(some, func(a, b *parkedClaim) int { return cmp.Compare(a.event.Seq, b.event.Seq) })
	return some
}

// packets are those of the claims that count.
func (all *parked) packets() map[string]bool {
	ids := make(map[string]bool)
	for i := range all.list {
		if p := &all.list[i]; p.counts && p.event.PacketID != "" {
			ids[p.event.PacketID] = true
		}
	}
	return ids
}

// names are the claims without a row, for people; only some when there are many.
func (all *parked) names() []string {
	var names []string
	more := 0
	for i := range all.list {
		switch p := &all.list[i]; {
		case p.written:
		case len(names) < namedMost:
			names = append(names, p.String())
		default:
			more++
		}
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more parked claims", more))
	}
	return names
}
