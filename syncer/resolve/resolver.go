package resolve

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"

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

func (r *Resolver) resolve(ctx context.Context, id string, d *decision) (models.Resolution, error) {
	var decided, others []heldClaim
	err := sqlstore.Retry(ctx, func() (err error) {
		decided, others, err = d.decide(ctx, r.db, []string{id}, &r.steps, func(change func(tx *sqlstore.Tx) error) error {
			return sqlstore.InTx(ctx, r.db, change)
		})
		return err
	})
	switch {
	case err != nil:
		return models.Resolution{}, fmt.Errorf("resolve: claim %s: %w", id, err)
	case len(decided) > 0:
		r.apply(ctx, decided)
		c := &decided[0]
		return models.Resolution{Resolved: models.ResolvedNow, Claim: c.Claim(c.Currency, c.HoldForMs)}, nil
	case len(others) > 0:
		c := &others[0]
		return models.Resolution{Resolved: d.against(c), Claim: c.Claim(c.Currency, c.HoldForMs)}, nil
	}
	return models.Resolution{}, fmt.Errorf("resolve: %w: claim %s", models.ErrNotFound, id)
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

// apply applies decisions to Redis at once, for as long as a caller waits for the answer.
func (r *Resolver) apply(ctx context.Context, decided []heldClaim) {
	r.steps.At("committed")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyWait)
	defer cancel()
	if err := r.relay.applyDecided(ctx, decided); err != nil {
		r.warn.Do(func() {
			r.log.LogAttrs(ctx, slog.LevelWarn, "redis did not get what became of a claim: the syncer's relay tries again",
				slog.String("campaign_id", decided[0].CampaignID), slog.Any("error", err))
		})
	}
}
