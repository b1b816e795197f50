package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
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
type ParkedClaim struct {
	Id      string // of the row in parked_events
	Event   models.Event
	Payload []byte
	reason  string
	Written bool // it has its row: whoever wrote that died before the event was off the list
	Counts  bool // its id and its place are free: it is a claim like any other, but for its row
}

// past is the claim on its way back into Redis.
func (p *ParkedClaim) Record() *lua.ClaimRecord {
	e := &p.Event
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
func (p *ParkedClaim) String() string {
	return fmt.Sprintf("claim %s (seq %d, %d units of user %s) is parked: %s",
		p.Event.ID, p.Event.Seq, p.Event.Quantity, p.Event.UserID, p.reason)
}

// parked are the parked claims of a campaign that nobody gave up. Those that count are claims of the campaign though they have
// no row: they hold their units, their user's limits and their place.
type ParkedClaims struct {
	All           []ParkedClaim
	Claims, Units int64 // of those that count
}

// readParked reads the parked claims of a campaign.
func ReadParked(ctx context.Context, q sqlstore.Querier, campaignID string) (*ParkedClaims, error) {
	all := &ParkedClaims{}
	n := 0
	err := sqlstore.ScanAll(ctx, q, "SELECT id, reason, payload FROM parked_events WHERE campaign_id = ? AND discarded_at IS NULL ORDER BY id LIMIT ?",
		[]any{campaignID, parkedMost + 1}, func(scan func(...any) error) error {
			var p ParkedClaim
			n++
			if err := scan(&p.Id, &p.reason, &p.Payload); err != nil {
				return err
			}
			var err error
			p.Event, err = models.DecodeEvent(p.Payload)
			if err == nil && p.Event.Type == models.EventClaimAccepted && p.Event.CampaignID == campaignID {
				all.All = append(all.All, p)
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
func (all *ParkedClaims) settle(ctx context.Context, q sqlstore.Querier, campaignID string) error {
	rows := map[string]known{}
	taken := map[int64]bool{}
	for chunk := range slices.Chunk(all.All, parkedAtOnce) {
		args := []any{}
		for i := range chunk {
			args = append(args, chunk[i].Event.ID)
		}
		marks := "(?" + strings.Repeat(",?", len(chunk)-1) + ")"
		args = append(args, campaignID)
		for i := range chunk {
			args = append(args, chunk[i].Event.Seq)
		}
		err := sqlstore.ScanAll(ctx, q, "SELECT id, campaign_id, seq, user_id, quantity FROM claims WHERE id IN "+marks+
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
	for i := range all.All {
		p := &all.All[i]
		k, there := rows[p.Event.ID]
		p.Written = there && k.is(&row{event: p.Event})
		if p.Counts = !there && !taken[p.Event.Seq] && lua.CheckPast(p.Record()) == nil; p.Counts {
			taken[p.Event.Seq] = true
			all.Claims, all.Units = all.Claims+1, all.Units+p.Event.Quantity
		}
	}
	return nil
}

// bySeq are those that count, in order.
func (all *ParkedClaims) BySeq() []*ParkedClaim {
	var some []*ParkedClaim
	for i := range all.All {
		if all.All[i].Counts {
			some = append(some, &all.All[i])
		}
	}
	slices.SortFunc(some, func(a, b *ParkedClaim) int { return cmp.Compare(a.Event.Seq, b.Event.Seq) })
	return some
}

// packets are those of the claims that count.
func (all *ParkedClaims) Packets() map[string]bool {
	ids := make(map[string]bool)
	for i := range all.All {
		if p := &all.All[i]; p.Counts && p.Event.PacketID != "" {
			ids[p.Event.PacketID] = true
		}
	}
	return ids
}

// names are the claims without a row, for people; only some when there are many.
func (all *ParkedClaims) Names() []string {
	var names []string
	more := 0
	for i := range all.All {
		switch p := &all.All[i]; {
		case p.Written:
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
