package claimed

import (
	"context"
	"time"

	"dibs/models"
)

// Claims reads the claims that have a row in MySQL, the authority for their
// status. Errors: models.ErrNotFound; any other means they are unavailable.
type Claims interface {
	Claim(ctx context.Context, id string) (models.Claim, error)
	// ClaimsOf returns up to q.Limit claims of a user, newest first.
	ClaimsOf(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error)
	// ClaimsOfCampaign returns up to q.Limit claims of a campaign that have a
	// row, newest first. Errors: models.ErrID if q.After isn't one of them.
	ClaimsOfCampaign(ctx context.Context, q models.CampaignClaimsQuery) ([]models.Claim, error)
}

// Resolver decides claims in MySQL, and notifies Redis. Errors:
// models.ErrNotFound if the claim has no row, or none yet. After any other
// the outcome is unknown, and a retry is harmless.
type Resolver interface {
	Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error)
	Release(ctx context.Context, claimID, reason string) (models.Resolution, error)
	Reopen(ctx context.Context, claimID, orderID, reason string) (models.Resolution, error)
	// Extend lengthens the hold. Requests with the same key extend it once;
	// the key may be "".
	Extend(ctx context.Context, claimID string, by time.Duration, key string) (models.Resolution, error)
}

// Applied knows how far MySQL has applied the claim streams.
type Applied interface {
	// AwaitApplied waits until MySQL has applied all that the claim streams
	// held at the call. It fails if that doesn't happen before ctx ends, or
	// can't be checked.
	AwaitApplied(ctx context.Context) error
}
