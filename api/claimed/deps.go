package claimed

import (
	"context"
	"time"

	"dibs/models"
)

// Claims reads the claims that have their row in MySQL, which is the
// authority for what became of them. Errors: models.ErrNotFound; any other
// means that they are not available now.
type Claims interface {
	Claim(ctx context.Context, id string) (models.Claim, error)
	// ClaimsOf gives up to q.Limit claims of a user, newest first.
	ClaimsOf(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error)
	// ClaimsOfCampaign gives up to q.Limit claims of a campaign that have
	// their row, newest first. It fails with models.ErrID when q.After is
	// none of them.
	ClaimsOfCampaign(ctx context.Context, q models.CampaignClaimsQuery) ([]models.Claim, error)
}

// Resolver decides what becomes of claims, in MySQL, and has Redis hear of
// it. Errors: models.ErrNotFound when the claim has no row, or not yet;
// any other means that nothing is known to be decided, and asking again
// does no harm.
type Resolver interface {
	Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error)
	Release(ctx context.Context, claimID, reason string) (models.Resolution, error)
	Reopen(ctx context.Context, claimID, orderID, reason string) (models.Resolution, error)
	// Extend has the hold last longer by that much. A request with a key,
	// which may be "", extends once.
	Extend(ctx context.Context, claimID string, by time.Duration, key string) (models.Resolution, error)
}

// Applied knows how far MySQL has applied the claim streams.
type Applied interface {
	// AwaitApplied waits until MySQL has applied all that the claim
	// streams held at the call. The error says that it has not until ctx
	// ended, or that this is not known.
	AwaitApplied(ctx context.Context) error
}
