package resolve

import (
	"context"
	"errors"
	"maps"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/tables"

	"gorm.io/gorm"
)

// errRaced reports that another decision
// was committed first. Nothing was changed.
var errRaced = errors.New("resolve: a claim was decided by another transaction")

type decision struct {
	event     event.Type
	isExpiry  bool // of a release
	orderID   string
	reason    string
	by        time.Duration // of an extension
	extendKey string        // digest of its idempotency key, or ""
}

type heldClaim struct {
	stored.ClaimRow `gorm:"embedded"`

	Kind      models.Kind
	Currency  string
	HoldForMs int64
	HoldMaxMs int64

	Applied event.Offset `gorm:"embedded"`

	outbox stored.OutboxRow // of a decided claim
}

func readClaims(ctx context.Context, db *gorm.DB, ids []string) (found []heldClaim, err error) {
	err = db.WithContext(ctx).Table("claims c").
		Joins("JOIN definitions k ON k.campaign_id = c.campaign_id"+
			" JOIN lots l ON l.campaign_id = c.campaign_id AND l.shard = c.shard"+
			" LEFT JOIN streams s ON s.partition_no = l.partition_no").
		Select("c.*, k.kind, k.currency, k.hold_for_ms, k.hold_max_ms, s.generation, s.state,"+
			" COALESCE(s.offset_id, '"+event.NoEntry+"') AS entry_id").
		Where("c.id IN ?", ids).Order("c.id").Find(&found).Error
	return found, err
}

// decide applies a decision to a claim that it fits, and returns the
// claim. The same transaction writes the outbox. Errors:
// models.ErrNotFound, models.ErrBehind.
func (r *Resolver) decide(ctx context.Context, d *decision, id string) (c heldClaim, result models.Resolved, err error) {
	for {
		found, err := r.read(ctx, id)
		if err != nil {
			return c, "", err
		}
		result, err = d.against(ctx, r.db, &found[0])
		if err != nil || result != models.ResolvedNow {
			return found[0], result, err
		}
		r.steps.At("found")
		at := r.now(ctx, d)
		err = r.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := d.mark(found, at); err != nil {
				return err
			}
			return d.write(ctx, tx, found, &r.steps)
		})
		if !errors.Is(err, errRaced) {
			return found[0], result, err
		}
	}
}

// now is the time of a decision. A reopen starts a hold, which ends by
// Redis' clock, so it takes that if Redis answers.
func (r *Resolver) now(ctx context.Context, d *decision) time.Time {
	if d.event == event.ClaimReopened {
		if now := r.relay.scripts.NowOrZero(ctx); !now.IsZero() {
			return now
		}
	}
	return sqlstore.Now()
}

// read returns a list of one claim. It waits for a MySQL that is behind
// what this process knows, as that may lack decisions. Errors:
// models.ErrNotFound, models.ErrBehind.
func (r *Resolver) read(ctx context.Context, id string) (found []heldClaim, err error) {
	scripts := r.relay.scripts
	err = campaigns.AwaitKnown(ctx, "claim "+id, func() (bool, error) {
		found, err = readClaims(ctx, r.db, []string{id})
		if err != nil {
			return false, err
		}
		if len(found) == 0 {
			return false, models.ErrNotFound
		}
		return scripts.IsBehind(lua.PartitionOf(found[0].LotID(), scripts.Partitions()), found[0].Applied)
	})
	return found, err
}

func (d *decision) against(ctx context.Context, db *gorm.DB, c *heldClaim) (models.Resolved, error) {
	isOfOrder := c.Status == models.ClaimRedeemed && c.OrderID != nil && *c.OrderID == d.orderID
	switch {
	case c.Kind == models.KindPacket && d.event == event.ClaimReopened:
		return models.ResolvedNotRedeemed, nil
	case c.Kind == models.KindPacket:
		return models.ResolvedPacket, nil
	case d.event == event.ClaimReopened:
		return d.againstReopened(ctx, db, c, isOfOrder)
	case c.Status == models.ClaimRedeemed && d.event == event.ClaimRedeemed && isOfOrder:
		return models.ResolvedBefore, nil
	case c.Status == models.ClaimRedeemed:
		return models.ResolvedAlreadyRedeemed, nil
	case c.Status != models.ClaimClaimed && d.event == event.ClaimReleased:
		return models.ResolvedBefore, nil
	case c.Status != models.ClaimClaimed:
		return models.ResolvedAlreadyReleased, nil
	case d.event == event.ClaimExtended:
		return d.againstExtended(ctx, db, c)
	}
	return models.ResolvedNow, nil
}

// againstReopened is against for a reopen. One
// of the same order is always a repetition.
func (d *decision) againstReopened(
	ctx context.Context, db *gorm.DB, c *heldClaim, isOfOrder bool,
) (models.Resolved, error) {
	var before int64
	err := db.WithContext(ctx).Model(&stored.ClaimOrder{}).
		Where("order_id = ? AND claim_id = ? AND reopened = 1", d.orderID, c.ID).Count(&before).Error
	switch {
	case err != nil || before > 0:
		return models.ResolvedBefore, err
	case isOfOrder:
		return models.ResolvedNow, nil
	case c.Status == models.ClaimRedeemed:
		return models.ResolvedAlreadyRedeemed, nil
	case c.Status == models.ClaimClaimed:
		return models.ResolvedNotRedeemed, nil
	}
	return models.ResolvedAlreadyReleased, nil
}

// againstExtended is against for an extension.
// A hold of the greatest length stays so.
func (d *decision) againstExtended(ctx context.Context, db *gorm.DB, c *heldClaim) (models.Resolved, error) {
	if c.HoldForMs == 0 {
		return models.ResolvedNoHold, nil
	}
	if until, extended := d.extend(c); !extended.After(until) {
		return models.ResolvedBefore, nil
	}
	if d.extendKey == "" {
		return models.ResolvedNow, nil
	}
	var before int64
	err := db.WithContext(ctx).Model(&stored.HoldExtension{}).
		Where("claim_id = ? AND key_digest = ?", c.ID, d.extendKey).Count(&before).Error
	if err != nil || before > 0 {
		return models.ResolvedBefore, err
	}
	return models.ResolvedNow, nil
}

// extend returns when the hold of a claim ends, now and after the extension.
func (d *decision) extend(c *heldClaim) (until, extended time.Time) {
	started := c.ClaimedAt
	if c.ReopenedAt != nil {
		started = *c.ReopenedAt
	}
	until = started.Add(time.Duration(c.HoldForMs) * time.Millisecond)
	if c.HeldUntil != nil {
		until = *c.HeldUntil
	}
	extended = until.Add(d.by)
	if last := started.Add(time.Duration(c.HoldMaxMs) * time.Millisecond); extended.After(last) {
		extended = last
	}
	return until, extended
}

// mark sets what becomes of claims, and their outbox rows.
func (d *decision) mark(claims []heldClaim, at time.Time) (err error) {
	for i := range claims {
		if at.Before(claims[i].ClaimedAt) { // our clock is behind Redis'
			at = claims[i].ClaimedAt
		}
	}
	for i := range claims {
		c := &claims[i]
		c.Decisions = new(c.DecisionsMade() + 1)
		d.set(c, at)
		c.outbox, err = d.outboxRow(c, at)
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decision) set(c *heldClaim, at time.Time) {
	switch d.event {
	case event.ClaimExtended:
		_, extended := d.extend(c)
		c.HeldUntil = &extended
	case event.ClaimReopened:
		c.Status = models.ClaimClaimed
		c.OrderID = nil
		c.ResolvedAt = nil
		c.ReopenedAt = &at
		c.HeldUntil = nil
	case event.ClaimRedeemed:
		c.Status = models.ClaimRedeemed
		c.OrderID = &d.orderID
		c.ResolvedAt = &at
	default:
		c.Status = models.ClaimReleased
		c.ReleaseReason = d.reason
		c.ResolvedAt = &at
		if d.isExpiry {
			c.Status = models.ClaimExpired
		}
	}
}

func (d *decision) outboxRow(c *heldClaim, at time.Time) (stored.OutboxRow, error) {
	kind := stored.OutboxEvent
	claimedAt := models.NewTime(c.ClaimedAt)
	e := event.Event{
		Type: d.event, CampaignID: c.CampaignID, UserID: c.UserID, Quantity: c.Quantity, Key: c.KeyDigest,
		Seq: c.Seq, Shard: c.Shard, Subjects: c.Subjects, At: models.NewTime(at), ClaimID: c.ID, ClaimedAt: &claimedAt,
		OrderID: d.orderID, Reason: d.reason, Decision: c.DecisionsMade(), ExtendKey: d.extendKey,
	}
	if d.event == event.ClaimReleased {
		kind = stored.OutboxRelease
	}
	if d.isExpiry {
		e.Reason = models.ReasonExpired
	}
	if d.event == event.ClaimReopened || d.event == event.ClaimExtended {
		e.ExpiresAt = c.Claim("", c.HoldForMs).ExpiresAt
	}
	return campaigns.NewOutboxRow(kind, &e)
}

// write writes the decision in tx. It fails
// with errRaced if another one was first.
func (d *decision) write(ctx context.Context, tx *gorm.DB, decided []heldClaim, at *steps.Steps) error {
	rows := make([]stored.OutboxRow, len(decided))
	byNumber := make(map[int64][]string)
	events := make(map[int64]*event.Event)
	for i := range decided {
		number := *decided[i].Decisions
		byNumber[number] = append(byNumber[number], decided[i].ID)
		rows[i] = decided[i].outbox
		events[number] = rows[i].Event
	}
	for number, ids := range byNumber {
		n, err := tables.Decide(tx, events[number], ids, true)
		if err != nil {
			return err
		}
		if n != int64(len(ids)) {
			return errRaced
		}
	}
	if err := d.audit(ctx, tx, decided); err != nil {
		return err
	}
	at.At("claims moved")
	if err := campaigns.PutOutbox(ctx, tx, rows); err != nil {
		return err
	}
	at.At("outbox written")
	return nil
}

// audit records reopened and extended claims, and by whom.
func (d *decision) audit(ctx context.Context, tx *gorm.DB, decided []heldClaim) error {
	var action string
	switch d.event {
	case event.ClaimReopened:
		action = models.AuditClaimReopened
	case event.ClaimExtended:
		action = models.AuditClaimExtended
	default:
		return nil
	}
	for i := range decided {
		e := decided[i].outbox.Event
		after := map[string]any{"claim_id": e.ClaimID, "order_id": e.OrderID, "reason": e.Reason, "expires_at": e.ExpiresAt}
		maps.DeleteFunc(after, func(_ string, v any) bool { return v == "" || v == (*models.Time)(nil) })
		if err := audit.Put(ctx, tx, action, e.CampaignID, nil, after); err != nil {
			return err
		}
	}
	return nil
}
