package resolve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/migrations"
	"dibs/models"
	"dibs/syncer/campaigns"

	"golang.org/x/time/rate"
	"gorm.io/gorm"
)

const (
	applyWait = time.Second      // most that an answer waits for Redis; the relay applies later what Redis did not get by then
	warnEvery = 30 * time.Second // how often a failure that lasts is logged
)

// Resolver decides what becomes of claims after they were made. MySQL is the authority: the one transaction that moves a
// claim away from "claimed" wins, and it writes what Redis must get into the outbox. Any number may run at once.
type Resolver struct {
	db    *gorm.DB
	relay *Relay
	log   *slog.Logger
	warn  rate.Sometimes
	steps steps.Steps
}

// NewResolver makes a resolver whose decisions relay applies to Redis.
func NewResolver(db *gorm.DB, relay *Relay, log *slog.Logger) *Resolver {
	return &Resolver{db: db, relay: relay, log: log, warn: rate.Sometimes{First: 1, Interval: warnEvery}}
}

// Redeem ends a claim by an order. The same order again is a repetition. Errors: models.ErrNotFound when the claim has no row
// (yet). After any other error the outcome is unknown, and asking again is safe.
func (r *Resolver) Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{status: models.ClaimRedeemed, orderID: &orderID})
}

// Release ends a claim and gives back what it took. A second release is a repetition, whatever its reason. Errors as Redeem.
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
		r.steps.At("committed")
		r.apply(ctx, []models.OutboxRow{*row})
		d.apply(&was)
		return models.Resolution{Resolved: models.ResolvedNow, Claim: was.Claim(was.Currency, was.HoldForMs)}, nil
	case row != nil: // a commit whose answer was lost may have been ours
		r.applyStored(ctx, row.ID)
	}
	return models.Resolution{Resolved: d.against(&was), Claim: was.Claim(was.Currency, was.HoldForMs)}, nil
}

// read finds a claim.
func (r *Resolver) read(ctx context.Context, id string) (was heldClaim, err error) {
	err = r.db.WithContext(ctx).Table("claims c").Joins("JOIN campaigns k ON k.id = c.campaign_id").
		Select("c.*, k.kind, k.currency, k.hold_for_ms").Where("c.id = ?", id).Take(&was).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return was, sqlstore.Final(fmt.Errorf("resolve: %w: claim %s", models.ErrNotFound, id))
	}
	if err != nil {
		return was, fmt.Errorf("resolve: claim %s: %w", id, err)
	}
	return was, nil
}

// against is the answer to a decision that came after another.
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

// apply sets on a claim what the decision changed.
func (d *decision) apply(c *heldClaim) {
	c.Status, c.OrderID, c.ReleaseReason = d.status, d.orderID, d.reason
}

// event makes the outbox row of a decision, and sets on was when it is decided.
func (d *decision) event(was *heldClaim) (*models.OutboxRow, error) {
	at := sqlstore.Now()
	if at.Before(was.ClaimedAt) { // this clock is behind Redis'
		at = was.ClaimedAt
	}
	was.ResolvedAt = &at
	row, err := resolutionRow(&was.ClaimRow, d)
	return &row, err
}

// resolutionRow makes the outbox row that says what became of a claim.
func resolutionRow(c *models.ClaimRow, d *decision) (models.OutboxRow, error) {
	kind, claimedAt := models.OutboxEvent, models.NewTime(c.ClaimedAt)
	e := models.Event{
		Type: models.EventClaimRedeemed, CampaignID: c.CampaignID, UserID: c.UserID, Quantity: c.Quantity, Key: c.KeyDigest,
		Seq: c.Seq, Shard: c.Shard,
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

// decide is the transaction. won is false when another decision came first; then nothing is changed.
func (r *Resolver) decide(ctx context.Context, c *heldClaim, d *decision, row *models.OutboxRow) (won bool, err error) {
	err = sqlstore.InTx(ctx, r.db, func(tx *sql.Tx) error {
		n, err := sqlstore.Exec(ctx, tx, "UPDATE claims SET status = ?, order_id = ?, release_reason = ?, resolved_at = ?"+
			" WHERE id = ? AND status = ?",
			string(d.status), d.orderID, d.reason, c.ResolvedAt.UTC().Format(sqlstore.TimeLayout), c.ID, string(models.ClaimClaimed))
		if err != nil || n == 0 {
			return err
		}
		r.steps.At("claim moved")
		if err := campaigns.PutOutbox(ctx, tx, []models.OutboxRow{*row}); err != nil {
			return err
		}
		if d.status != models.ClaimRedeemed {
			r.steps.At("outbox written")
			if err := moveBack(ctx, tx, r.db.Name(), []models.ClaimRow{c.ClaimRow}); err != nil {
				return err
			}
		}
		r.steps.At("books moved")
		won = true
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("resolve: claim %s: %w", c.ID, err)
	}
	return won, nil
}

// moveBack moves the books of campaigns by claims that were released. It comes last in a transaction, so that hot rows are
// locked for one statement and the commit. While Redis works by an older definition, remaining only grows by what comes back, so
// that it is not below what Redis says; once Redis has the definition, campaigns.Applier makes it exact. remaining is computed
// before claimed, because MySQL hands assigned values on from left to right.
func moveBack(ctx context.Context, tx *sql.Tx, dialect string, released []models.ClaimRow) error {
	sums, ofCampaigns := sumsOf(released)
	for _, table := range models.BooksTables { // in the order of a flush
		if err := moveTableBack(ctx, tx, dialect, table, sums[table]); err != nil {
			return err
		}
	}
	return moveTableBack(ctx, tx, dialect, models.BooksTable(""), ofCampaigns)
}

// moveTableBack is moveBack for one table.
func moveTableBack(ctx context.Context, tx *sql.Tx, dialect, table string, sums []releasedSum) error {
	if len(sums) == 0 {
		return nil
	}
	greatest := "GREATEST"
	if dialect == migrations.SQLite {
		greatest = "MAX"
	}
	var args []any
	units := func() string {
		return caseOf(&args, sums, (*releasedSum).id, func(s *releasedSum) any { return s.units })
	}
	args = append(args, string(models.ResidencyResident))
	//nolint:gosec // constants and question marks only
	query := "UPDATE " + table + " SET remaining = CASE" +
		" WHEN applied_version = version OR residency <> ?" +
		" THEN " + greatest + "(total - claimed + " + units() + ", 0) ELSE remaining + " + units() + " END," +
		" claimed = claimed - " + units() +
		", released_claims = released_claims + " + caseOf(&args, sums, (*releasedSum).id, func(s *releasedSum) any { return s.claims }) +
		", updated_at = ? WHERE id IN " + sqlstore.Marks(len(sums))
	args = append(args, sqlstore.Now().Format(sqlstore.TimeLayout))
	for i := range sums {
		args = append(args, sums[i].campaignID)
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("resolve: move books: %w", err)
	}
	return nil
}

// releasedSum is the sum of released claims of one campaign.
type releasedSum struct {
	campaignID    string
	units, claims int64
}

func (s *releasedSum) id() string { return s.campaignID }

// sumsOf adds up claims by campaign or shard, for the table that has its row, and those of shards by campaign.
func sumsOf(claims []models.ClaimRow) (byTable map[string][]releasedSum, ofCampaigns []releasedSum) {
	byTable = make(map[string][]releasedSum)
	for i := range claims {
		c := &claims[i]
		table := models.BooksTable(c.LotID())
		byTable[table] = addReleased(byTable[table], c.LotID(), c.Quantity)
		if c.Shard > 0 {
			ofCampaigns = addReleased(ofCampaigns, c.CampaignID, c.Quantity)
		}
	}
	return byTable, ofCampaigns
}

func addReleased(sums []releasedSum, id string, units int64) []releasedSum {
	at := slices.IndexFunc(sums, func(s releasedSum) bool { return s.campaignID == id })
	if at < 0 {
		at, sums = len(sums), append(sums, releasedSum{campaignID: id})
	}
	sums[at].units, sums[at].claims = sums[at].units+units, sums[at].claims+1
	return sums
}

// apply applies rows to Redis at once, for as long as somebody waits for the answer.
func (r *Resolver) apply(ctx context.Context, rows []models.OutboxRow) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyWait)
	defer cancel()
	var err error
	if len(rows) == 1 && rows[0].Kind == models.OutboxEvent {
		err = r.relay.tell(ctx, &rows[0])
	} else {
		_, err = r.relay.Apply(ctx, rows)
	}
	if err != nil {
		r.warn.Do(func() {
			r.log.LogAttrs(ctx, slog.LevelWarn, "redis did not get what became of a claim: the syncer's relay tries again",
				slog.String("campaign_id", rows[0].CampaignID), slog.Any("error", err))
		})
	}
}

// applyStored applies a row that may be in the outbox.
func (r *Resolver) applyStored(ctx context.Context, id string) {
	var rows []models.OutboxRow
	err := r.db.WithContext(ctx).Raw("SELECT id, campaign_id, kind, payload FROM outbox WHERE id = ?", id).Scan(&rows).Error
	if err == nil && len(rows) > 0 {
		r.apply(ctx, rows)
	}
}
