package claimed

import (
	"context"

	"dibs/lua"
	"dibs/models"
)

// Claims reads the claims that have their row in MySQL, which is the authority for what became of them. Errors:
// models.ErrNotFound; any other means that they are not available now.
type Claims interface {
	Claim(ctx context.Context, id string) (models.Claim, error)
	// ClaimsOf gives up to q.Limit claims of a user, newest first.
	ClaimsOf(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error)
}

// Resolver decides what becomes of claims, in MySQL, and has Redis hear of it. Errors: models.ErrNotFound when the claim has no
// row, or not yet; any other means that nothing is known to be decided, and asking again does no harm.
type Resolver interface {
	Redeem(ctx context.Context, claimID, orderID string) (models.Resolution, error)
	Release(ctx context.Context, claimID, reason string) (models.Resolution, error)
}

// Streams reads the claim streams. Errors: those of a Redis that is away.
type Streams interface {
	Partitions() int
	// Unread reports how far a consumer group is with a partition's stream.
	Unread(ctx context.Context, partition int, group string) (lua.Unread, error)
	// Entries reads up to most entries of a partition's stream in order, from the one at from on.
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
}
