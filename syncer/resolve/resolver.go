package resolve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"
	"dibs/models/event"

	"golang.org/x/time/rate"
	"gorm.io/gorm"
)

const (
	// longest wait of an answer for Redis; the relay delivers later.
	deliverWait = time.Second
	warnEvery   = 30 * time.Second // between two logs of a lasting failure
)

// Resolver decides accepted claims. MySQL is authoritative. The first
// transaction that moves a claim from "claimed" wins, and writes the
// outbox. Any number may run at once.
type Resolver struct {
	db    *gorm.DB
	relay *Relay
	log   *slog.Logger
	warn  rate.Sometimes
	steps steps.Steps
}

// NewResolver returns a resolver whose decisions relay delivers.
func NewResolver(db *gorm.DB, relay *Relay, log *slog.Logger) *Resolver {
	return &Resolver{db: db, relay: relay, log: log, warn: rate.Sometimes{First: 1, Interval: warnEvery}}
}

// Redeem ends a claim by an order; the same order again is a
// repetition. Errors: models.ErrNotFound if the claim has no row (yet).
// After any other error the outcome is unknown, and a retry is safe.
func (r *Resolver) Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{event: event.ClaimRedeemed, orderID: orderID})
}

// Release ends a claim and frees its units. A second one is a repetition.
// Errors as Redeem.
func (r *Resolver) Release(ctx context.Context, claimID, reason string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{event: event.ClaimReleased, reason: reason})
}

// Reopen reverts a redemption and starts a new hold. The same order again is
// a repetition, whatever has happened to the claim since. Errors as Redeem.
func (r *Resolver) Reopen(ctx context.Context, claimID, orderID, reason string) (models.Resolution, error) {
	return r.resolve(ctx, claimID, &decision{event: event.ClaimReopened, orderID: orderID, reason: reason})
}

// Extend prolongs a claim's hold within the campaign's bound.
// A repeated request with a key extends once. Errors as Redeem.
func (r *Resolver) Extend(ctx context.Context, claimID string, by time.Duration, key string) (models.Resolution, error) {
	d := &decision{event: event.ClaimExtended, by: by}
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		d.extendKey = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return r.resolve(ctx, claimID, d)
}

func (r *Resolver) resolve(ctx context.Context, id string, d *decision) (models.Resolution, error) {
	var c heldClaim
	var result models.Resolved
	err := sqlstore.Retry(ctx, func() (err error) {
		c, result, err = r.decide(ctx, d, id)
		if errors.Is(err, models.ErrNotFound) || errors.Is(err, models.ErrBehind) {
			return sqlstore.Final(err)
		}
		return err
	})
	if err != nil {
		return models.Resolution{}, fmt.Errorf("resolve: claim %s: %w", id, err)
	}
	if result == models.ResolvedNow {
		r.deliver(ctx, []heldClaim{c})
	}
	return models.Resolution{Resolved: result, Claim: c.Claim(c.Currency, c.HoldForMs)}, nil
}

// deliver delivers decisions to Redis while
// the caller waits, for up to deliverWait.
func (r *Resolver) deliver(ctx context.Context, decided []heldClaim) {
	r.steps.At("committed")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverWait)
	defer cancel()
	if err := r.relay.deliverDecided(ctx, decided); err != nil {
		r.warn.Do(func() {
			r.log.LogAttrs(ctx, slog.LevelWarn, "redis did not get what became of a claim: the syncer's relay tries again",
				slog.String("campaign_id", decided[0].CampaignID), slog.Any("error", err))
		})
	}
}
