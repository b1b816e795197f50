// Package parking has the events that MySQL refuses: they are kept until
// it takes them or an operator gives them up. A parked claim that counts
// uses its units and its user's limits.
package parking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/lua"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ErrTooMany reports more parked claims than a load takes.
var ErrTooMany = errors.New("parking: parked claims are in the way")

const (
	most      = 10_000 // parked events of a campaign in memory; Read refuses more
	atOnce    = 500    // of them read by one statement
	namedMost = 10     // of them named one by one
)

// Claim is a claim that Redis accepted and whose event is parked.
type Claim struct {
	ID      string // of its row in parked_events
	Event   event.Event
	Written bool // it has a row; its writer died before it deleted the parked event
	Counts  bool // no row, and no other claim has its id

	reason string
}

// Record returns the claim as Redis must have it.
func (p *Claim) Record() *lua.ClaimRecord {
	e := &p.Event
	record := &lua.ClaimRecord{
		ID: []byte(e.ID), UserID: []byte(e.UserID), KeyDigest: []byte(e.Key), Seq: e.Seq, Quantity: e.Quantity,
		At: e.At.Time, Live: true, PacketID: []byte(e.PacketID), Subjects: e.Subjects,
	}
	if e.Amount != nil {
		record.Amount = *e.Amount
	}
	return record
}

// String describes the claim to operators.
func (p *Claim) String() string {
	return fmt.Sprintf("claim %s (seq %d, %d units of user %s) is parked: %s",
		p.Event.ID, p.Event.Seq, p.Event.Quantity, p.Event.UserID, p.reason)
}

// Claims are a campaign's parked claims, without discarded ones. Those
// that count use units and their user's limits, as claims with rows do.
type Claims struct {
	All           []Claim
	Claims, Units int64 // of those that count
}

// Read reads a campaign's parked claims. Errors: ErrTooMany if
// there are more than 10,000, and the database's.
func Read(ctx context.Context, db *gorm.DB, campaignID string) (*Claims, error) {
	all, next, err := read(db.WithContext(ctx), campaignID, "", most)
	if err == nil && next != "" {
		return nil, fmt.Errorf("%w: %s has more than %d; `dibs reconcile --repair` writes those that the database takes by now,"+
			" and `--give-up-claims` gives the others up", ErrTooMany, campaignID, most)
	}
	return all, err
}

// Each passes all parked claims of a campaign to do, in batches.
// do may write or discard them. It does not know which of them count.
func Each(ctx context.Context, db *gorm.DB, campaignID string, do func([]Claim) error) error {
	for after := ""; ; {
		some, next, err := read(db.WithContext(ctx), campaignID, after, atOnce)
		if err == nil && len(some.All) > 0 {
			err = do(some.All)
		}
		if err != nil || next == "" {
			return err
		}
		after = next
	}
}

// read reads up to limit parked events
// after an id. next is empty after the last one.
func read(db *gorm.DB, campaignID, after string, limit int) (all *Claims, next string, err error) {
	var rows []stored.ParkedEvent
	err = db.Where("campaign_id = ? AND id > ? AND discarded_at IS NULL", campaignID, after).
		Order("id").Limit(limit + 1).Find(&rows).Error
	if err != nil {
		return nil, "", fmt.Errorf("parking: events of %s: %w", campaignID, err)
	}
	if len(rows) > limit {
		rows = rows[:limit]
		next = rows[limit-1].ID
	}
	all = &Claims{}
	for i := range rows {
		e, malformed := event.Decode(rows[i].Payload)
		if malformed == nil && e.Type == event.ClaimAccepted && e.LotID() == campaignID {
			all.All = append(all.All, Claim{ID: rows[i].ID, Event: e, reason: rows[i].Reason})
		}
	}
	if err := all.classify(db); err != nil {
		return nil, "", fmt.Errorf("parking: events of %s: %w", campaignID, err)
	}
	return all, next, nil
}

// Left locks parked claims, and returns those that still await a decision:
// they are neither discarded nor have a row by now. db is a transaction that
// has read nothing: it must see what others committed.
func Left(db *gorm.DB, parked []Claim) ([]Claim, error) {
	var ids []string
	for i := range parked {
		ids = append(ids, parked[i].ID)
	}
	var waiting []string
	err := db.Model(&stored.ParkedEvent{}).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("id IN ? AND discarded_at IS NULL", ids).Pluck("id", &waiting).Error
	if err != nil {
		return nil, fmt.Errorf("parking: %w", err)
	}
	left := &Claims{}
	for i := range parked {
		if slices.Contains(waiting, parked[i].ID) {
			left.All = append(left.All, parked[i])
		}
	}
	if err := left.classify(db); err != nil {
		return nil, fmt.Errorf("parking: %w", err)
	}
	return slices.DeleteFunc(left.All, func(p Claim) bool { return p.Written }), nil
}

func (all *Claims) classify(db *gorm.DB) error {
	rows, err := all.rows(db)
	if err != nil {
		return err
	}
	for i := range all.All {
		p := &all.All[i]
		k, exists := rows[p.Event.ID]
		p.Written = exists && k.IsOf(&p.Event)
		p.Counts = !exists && p.Record().Check() == nil
		if p.Counts {
			all.Claims++
			all.Units += p.Event.Quantity
		}
	}
	return nil
}

// rows reads the claims with the id of a parked one, by id.
func (all *Claims) rows(db *gorm.DB) (rows map[string]stored.ClaimRow, err error) {
	rows = make(map[string]stored.ClaimRow)
	for chunk := range slices.Chunk(all.All, atOnce) {
		var ids []string
		for i := range chunk {
			ids = append(ids, chunk[i].Event.ID)
		}
		var found []stored.ClaimRow
		err := db.Raw("SELECT "+stored.ClaimIdentity+" FROM claims WHERE id IN ?", ids).Scan(&found).Error
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			rows[k.ID] = k
		}
	}
	return rows, nil
}

// BySeq returns the claims that count, in order of seq.
func (all *Claims) BySeq() []*Claim {
	var counting []*Claim
	for i := range all.All {
		if all.All[i].Counts {
			counting = append(counting, &all.All[i])
		}
	}
	slices.SortFunc(counting, func(a, b *Claim) int { return cmp.Compare(a.Event.Seq, b.Event.Seq) })
	return counting
}

// Packets returns the packet ids of the claims that count.
func (all *Claims) Packets() map[string]bool {
	ids := make(map[string]bool)
	for i := range all.All {
		if p := &all.All[i]; p.Counts && p.Event.PacketID != "" {
			ids[p.Event.PacketID] = true
		}
	}
	return ids
}

// Names describes the claims without a row
// to operators: the first ones by name.
func (all *Claims) Names() []string {
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
