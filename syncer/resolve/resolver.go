package resolve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/migrations"
	"dibs/models"
	"dibs/syncer/campaigns"

	"golang.org/x/time/rate"
	"gorm.io/gorm"
)

// tellWait is how long an answer waits for Redis to hear of it. What Redis did not hear by then the relay tells it.
const tellWait = time.Second

// warnEvery is how often a trouble that lasts is logged.
const warnEvery = 30 * time.Second

// Resolver decides what becomes of claims after they were made. MySQL is the authority: the one transaction that moves a
// claim away from "claimed" wins, and writes down in the same transaction what Redis must be told. Any number may run at once.
type Resolver struct {
	db       *gorm.DB
	relay    *Relay
	log      *slog.Logger
	complain rate.Sometimes

	step func(name string) // tests only: called between the steps
}

// NewResolver makes a resolver that tells Redis through relay.
func NewResolver(db *gorm.DB, relay *Relay, log *slog.Logger) *Resolver {
	return &Resolver{db: db, relay: relay, log: log, complain: rate.Sometimes{First: 1, Interval: warnEvery}, step: func(string) {}}
}

// Redeem ends a claim by an order. The same order again is a repetition. Errors: models.ErrNotFound when the claim has no row
// (yet); any other means that nothing is known to be decided, and asking again does no harm.
func (r *Resolver) Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{status: models.ClaimRedeemed, orderID: &orderID})
}

// Release ends a claim and gives back what it took. Again is a repetition, whatever the reason. Errors as Redeem.
func (r *Resolver) Release(ctx context.Context, claimID, reason string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{status: models.ClaimReleased, reason: reason})
}

// decision is what is to become of a claim.
type decision struct {
	status  models.ClaimStatus
	orderID *string
	reason  string
}

// heldClaim is a claim with what its campaign says of it.
type heldClaim struct {
	models.ClaimRow `gorm:"embedded"`

	Kind      models.Kind
	Currency  string
	HoldForMs int64
}

func (r *Resolver) resolve(ctx context.Context, id string, d *decision) (models.Resolution, error) {
	var row *models.OutboxRow // the newest that may be committed
	var was heldClaim
	var won bool
	err := sqlstore.Retry(ctx, func() (err error) {
		was, err = r.read(ctx, id)
		if err != nil || was.Status != models.ClaimClaimed || was.Kind == models.KindPacket {
			return err
		}
		if row, err = d.event(&was); err != nil {
			return sqlstore.Final(err)
		}
		won, err = r.decide(ctx, &was, d, row)
		if err == nil && !won {
			was, err = r.read(ctx, id)
		}
		return err
	})
	if err != nil {
		return models.Resolution{}, err
	}
	switch {
	case won:
		r.step("committed")
		r.tell(ctx, []models.OutboxRow{*row})
		d.apply(&was)
		return models.Resolution{Resolved: models.ResolvedNow, Claim: was.Claim(was.Currency, was.HoldForMs)}, nil
	case row != nil: // a commit whose answer was lost may have been ours
		r.tellStored(ctx, row.ID)
	}
	return models.Resolution{Resolved: d.against(&was), Claim: was.Claim(was.Currency, was.HoldForMs)}, nil
}

// read finds a claim.
func (r *Resolver) read(ctx context.Context, id string) (was heldClaim, err error) {
	err = r.db.WithContext(ctx).Table("claims c").Joins("JOIN campaigns k ON k.id = c.campaign_id").
		Select("c.*, k.kind, k.currency, k.hold_for_ms").Where("c.id = ?", id).Take(&was).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return was, sqlstore.Final(fmt.Errorf("syncer: %w: claim %s", models.ErrNotFound, id))
	}
	if err != nil {
		return was, fmt.Errorf("syncer: claim %s: %w", id, err)
	}
	return was, nil
}

// against tells what a decision comes to that meets another.
func (d *decision) against(was *heldClaim) models.Resolved {
	switch {
	case was.Kind == models.KindPacket:
		return models.ResolvedPacket
	case was.Status == models.ClaimRedeemed && d.status == models.ClaimRedeemed && was.OrderID != nil && *was.OrderID == *d.orderID:
		return models.ResolvedBefore
	case was.Status == models.ClaimRedeemed:
		return models.ResolvedAlreadyRedeemed
	case d.status == models.ClaimReleased:
		return models.ResolvedBefore
	}
	return models.ResolvedAlreadyReleased
}

// apply has a claim read as the decision leaves it.
func (d *decision) apply(c *heldClaim) {
	c.Status, c.OrderID, c.ReleaseReason = d.status, d.orderID, d.reason
}

// event is what Redis must be told of a decision. When it is decided stands in was, too.
func (d *decision) event(was *heldClaim) (*models.OutboxRow, error) {
	at := sqlstore.Now()
	if at.Before(was.ClaimedAt) { // by a clock that is behind Redis'
		at = was.ClaimedAt
	}
	was.ResolvedAt = &at
	row, err := resolutionRow(&was.ClaimRow, d)
	return &row, err
}

// resolutionRow is the row of outbox that tells what became of a claim.
func resolutionRow(c *models.ClaimRow, d *decision) (models.OutboxRow, error) {
	kind, claimedAt := models.OutboxEvent, models.NewTime(c.ClaimedAt)
	e := models.Event{
		Type: models.EventClaimRedeemed, CampaignID: c.CampaignID, UserID: c.UserID, Quantity: c.Quantity, Key: c.KeyDigest, Seq: c.Seq,
		At: models.NewTime(*c.ResolvedAt), ClaimID: c.ID, ClaimedAt: &claimedAt, Reason: d.reason,
	}
	if d.status != models.ClaimRedeemed {
		kind, e.Type = models.OutboxRelease, models.EventClaimReleased
	}
	if d.status == models.ClaimExpired {
		e.Reason = models.ReasonExpired
	}
	if d.orderID != nil {
		e.OrderID = *d.orderID
	}
	return campaigns.NewOutboxRow(kind, &e)
}

// decide is the transaction. won is false when another decision was first; then nothing is changed.
func (r *Resolver) decide(ctx context.Context, c *heldClaim, d *decision, row *models.OutboxRow) (won bool, err error) {
	pool, err := r.db.DB()
	if err != nil {
		return false, fmt.Errorf("syncer: claim %s: %w", c.ID, err)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("syncer: claim %s: %w", c.ID, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	moved, err := tx.ExecContext(ctx, "UPDATE claims SET status = ?, order_id = ?, release_reason = ?, resolved_at = ?"+
		" WHERE id = ? AND status = ?",
		string(d.status), d.orderID, d.reason, c.ResolvedAt.UTC().Format(sqlstore.TimeLayout), c.ID, string(models.ClaimClaimed))
	if err != nil {
		return false, fmt.Errorf("syncer: claim %s: %w", c.ID, err)
	}
	if n, err := moved.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	r.step("claim moved")
	if err := campaigns.PutOutbox(ctx, tx, []models.OutboxRow{*row}); err != nil {
		return false, err
	}
	if d.status != models.ClaimRedeemed {
		r.step("told outbox")
		if err := moveBack(ctx, tx, r.db.Name(), c.CampaignID, c.Quantity, 1); err != nil {
			return false, err
		}
	}
	r.step("books moved")
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("syncer: claim %s: %w", c.ID, err)
	}
	return true, nil
}

// moveBack moves the books of a campaign by claims that were released. It comes last in a transaction, so that the hot row is
// locked for one statement and the commit. While Redis works by an older definition remaining only grows by what comes back,
// so that it is not below what Redis says; bringer.settle makes it exact. It is computed before claimed, because MySQL hands
// assigned values on from left to right.
func moveBack(ctx context.Context, tx *sql.Tx, dialect, campaignID string, units, claims int64) error {
	least := "GREATEST"
	if dialect == migrations.SQLite {
		least = "MAX"
	}
	_, err := tx.ExecContext(ctx, "UPDATE campaigns SET remaining = CASE"+
		" WHEN applied_version = version OR residency <> ? AND (residency <> ? OR epoch = 0)"+
		" THEN "+least+"(total - claimed + ?, 0) ELSE remaining + ? END,"+
		" claimed = claimed - ?, released_claims = released_claims + ?, updated_at = ? WHERE id = ?",
		string(models.ResidencyResident), string(models.ResidencyNone), units, units, units, claims, sqlstore.Now().Format(sqlstore.TimeLayout), campaignID)
	if err != nil {
		return fmt.Errorf("syncer: release of %s: %w", campaignID, err)
	}
	return nil
}

// tell has Redis hear of a decision at once, for as long as somebody waits for the answer.
func (r *Resolver) tell(ctx context.Context, rows []models.OutboxRow) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWait)
	defer cancel()
	if _, err := r.relay.Apply(ctx, rows); err != nil {
		r.complain.Do(func() {
			r.log.LogAttrs(ctx, slog.LevelWarn, "redis was not told what became of a claim, it is told later",
				slog.String("campaign_id", rows[0].CampaignID), slog.Any("error", err))
		})
	}
}

// tellStored is tell for a row that may be there.
func (r *Resolver) tellStored(ctx context.Context, id string) {
	var rows []models.OutboxRow
	err := r.db.WithContext(ctx).Raw("SELECT id, campaign_id, kind, payload FROM outbox"+
		" WHERE id = ? AND applied_at IS NULL", id).Scan(&rows).Error
	if err == nil && len(rows) > 0 {
		r.tell(ctx, rows)
	}
}
