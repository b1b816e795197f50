package api

import (
	"context"

	"dibs/lua"
	"dibs/models"
)

// Claimer runs the claims of one campaign in one script call, up to lua.ClaimsMax of them, and answers each in order. It
// must not keep reqs. Errors: lua.ErrUnavailable (surely nothing was claimed); anything else is taken as lua.ErrOutcomeUnknown.
type Claimer interface {
	// ClaimAfter is told what the caller saw of the campaign: a Redis that went back behind that claims nothing.
	ClaimAfter(ctx context.Context, m lua.Meta, seen lua.Position, reqs []lua.ClaimRequest) (replies []lua.ClaimReply, now lua.CampaignView, err error)
}

// StateReader reads what Redis holds of a campaign. Errors: lua.ErrAbsent, lua.ErrDamaged and those of a Redis that is away.
type StateReader interface {
	State(ctx context.Context, campaignID string) (lua.State, error)
}

// Hydrator brings a campaign that Redis lacks into Redis, when MySQL proves that this is safe. Errors: models.ErrNotFound
// when there is no such campaign; any other leaves the campaign unavailable.
type Hydrator interface {
	Hydrate(ctx context.Context, campaignID string) (lua.Meta, error)
	// Recover is Hydrate for one who saw more of the campaign than Redis holds now.
	Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error)
}

// Campaigns keeps the definitions of campaigns in MySQL and brings changes to Redis. Errors: models.ErrNotFound,
// models.ErrExists, *models.FieldError; any other means that it is not available now.
type Campaigns interface {
	// Create is idempotent: the same campaign again is created=false, other content under the same id models.ErrExists.
	Create(ctx context.Context, c models.Campaign) (stored models.Campaign, created bool, err error)
	Get(ctx context.Context, id string) (models.Campaign, error)
	// List gives up to limit campaigns by id, those after the id after.
	List(ctx context.Context, after string, limit int) ([]models.Campaign, error)
	// Change returns when the change is in force for the next claim.
	Change(ctx context.Context, id string, change models.Change) (models.Campaign, error)
	// AddPackets stores all packets of a batch or none. The same list, or the same key, again adds nothing. Errors beyond the
	// above: models.ErrClosed, models.ErrKeyMismatch.
	AddPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error)
	// Books reads units and claims that have their rows.
	Books(ctx context.Context, id string) (models.Books, error)
}

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
	// Unread tells how far a consumer group is with a partition's stream.
	Unread(ctx context.Context, partition int, group string) (lua.Unread, error)
	// Entries reads up to most entries of a partition's stream in order, from the one at from on.
	Entries(ctx context.Context, partition int, from lua.EntryID, most int) ([]lua.Entry, error)
}

// Deps are the rooms behind the API.
type Deps struct {
	Claimer   Claimer
	States    StateReader
	Hydrator  Hydrator
	Campaigns Campaigns
	Claims    Claims
	Resolver  Resolver
	Streams   Streams
	// Ready tells why claims can't be taken now; nil when they can.
	Ready func(ctx context.Context) error
}

var (
	_ Claimer     = (*lua.Scripts)(nil)
	_ StateReader = (*lua.Scripts)(nil)
	_ Streams     = (*lua.Scripts)(nil)
)
