package resolve

import (
	"context"
	"errors"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"

	"gorm.io/gorm"
)

// errRaced says that another decision of one of the claims was committed first; nothing was changed.
var errRaced = errors.New("resolve: a claim was decided by another transaction")

// decision is what becomes of claims.
type decision struct {
	status  models.ClaimStatus
	orderID *string
	reason  string
}

// heldClaim is a claim with the columns of its campaign that a decision needs.
type heldClaim struct {
	models.ClaimRow `gorm:"embedded"`

	Kind      models.Kind
	Currency  string
	HoldForMs int64

	outbox models.OutboxRow // of a decided claim: what Redis and the stream are to be told
}

// readClaims reads the claims of that id that exist.
func readClaims(ctx context.Context, db *gorm.DB, ids []string) (found []heldClaim, err error) {
	err = db.WithContext(ctx).Table("claims c").Joins("JOIN campaigns k ON k.id = c.campaign_id").
		Select("c.*, k.kind, k.currency, k.hold_for_ms").Where("c.id IN ?", ids).Order("c.id").Find(&found).Error
	return found, err
}

// decide applies a decision to those of the claims that are undecided, in one transaction, which inTx runs, and returns them. The
// others it returns as MySQL has them. The transaction writes what Redis and the stream are to be told into the outbox; counters move when
// that is applied.
func (d *decision) decide(
	ctx context.Context, db *gorm.DB, ids []string, at *steps.Steps, inTx func(change func(tx *sqlstore.Tx) error) error,
) (decided, others []heldClaim, err error) {
	for {
		decided, err = readClaims(ctx, db, ids)
		if err != nil {
			return nil, nil, err
		}
		others = nil
		decided = slices.DeleteFunc(decided, func(c heldClaim) bool {
			isDecided := c.Status != models.ClaimClaimed || c.Kind == models.KindPacket
			if isDecided {
				others = append(others, c)
			}
			return isDecided
		})
		if len(decided) == 0 {
			return nil, others, nil
		}
		err := inTx(func(tx *sqlstore.Tx) error {
			if err := d.apply(decided, sqlstore.Now()); err != nil {
				return err
			}
			return d.write(ctx, tx, decided, at)
		})
		if err == nil {
			return decided, others, nil
		}
		if !errors.Is(err, errRaced) { // then at least one claim fewer is undecided
			return nil, nil, err
		}
	}
}

// apply sets on claims what the decision makes of them at a time, and makes their rows of outbox.
func (d *decision) apply(claims []heldClaim, at time.Time) (err error) {
	for i := range claims {
		if at.Before(claims[i].ClaimedAt) { // this clock is behind Redis'
			at = claims[i].ClaimedAt
		}
	}
	for i := range claims {
		c := &claims[i]
		c.Status = d.status
		c.OrderID = d.orderID
		c.ReleaseReason = d.reason
		c.ResolvedAt = &at
		c.Decisions = new(c.DecisionsMade() + 1)
		c.outbox, err = d.outboxRow(&c.ClaimRow)
		if err != nil {
			return err
		}
	}
	return nil
}

// outboxRow makes the row that says what became of a claim.
func (d *decision) outboxRow(c *models.ClaimRow) (models.OutboxRow, error) {
	kind := models.OutboxEvent
	claimedAt := models.NewTime(c.ClaimedAt)
	e := models.Event{
		Type: models.EventClaimRedeemed, CampaignID: c.CampaignID, UserID: c.UserID, Quantity: c.Quantity, Key: c.KeyDigest,
		Seq: c.Seq, Shard: c.Shard, Subjects: c.Subjects,
		At: models.NewTime(*c.ResolvedAt), ClaimID: c.ID, ClaimedAt: &claimedAt, Reason: d.reason, Decision: c.DecisionsMade(),
	}
	if d.status != models.ClaimRedeemed {
		kind = models.OutboxRelease
		e.Type = models.EventClaimReleased
	}
	if d.status == models.ClaimExpired {
		e.Reason = models.ReasonExpired
	}
	if d.orderID != nil {
		e.OrderID = *d.orderID
	}
	return campaigns.NewOutboxRow(kind, &e)
}

// write is the transaction. It fails with errRaced unless all claims are undecided.
func (d *decision) write(ctx context.Context, tx *sqlstore.Tx, decided []heldClaim, at *steps.Steps) error {
	rows := make([]models.OutboxRow, len(decided))
	byNumber := make(map[int64][]string) // ids of claims, by the number of this decision
	for i := range decided {
		number := *decided[i].Decisions
		byNumber[number] = append(byNumber[number], decided[i].ID)
		rows[i] = decided[i].outbox
	}
	for number, ids := range byNumber {
		args := []any{
			string(d.status), d.orderID, d.reason, decided[0].ResolvedAt.UTC().Format(sqlstore.TimeLayout), number, string(models.ClaimClaimed), number - 1,
		}
		n, err := sqlstore.Exec(ctx, tx, "UPDATE claims"+sqlstore.ByKey(tx)+" SET status = ?, order_id = ?, release_reason = ?, resolved_at = ?, decisions = ?"+
			" WHERE status = ? AND COALESCE(decisions, 0) = ? AND id IN "+sqlstore.Marks(len(ids)), append(args, sqlstore.Args(ids)...)...)
		if err != nil {
			return err
		}
		if n != int64(len(ids)) {
			return errRaced
		}
	}
	if d.orderID != nil {
		for i := range decided {
			if err := writer.PutOrder(ctx, tx, *d.orderID, decided[i].ID); err != nil {
				return err
			}
		}
	}
	at.At("claims moved")
	if err := campaigns.PutOutbox(ctx, tx, rows); err != nil {
		return err
	}
	at.At("outbox written")
	return nil
}
