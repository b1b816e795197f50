package claiming

import (
	"context"

	"dibs/lua"
	"dibs/models"
)

// Claimer runs up to lua.ClaimsMax claims of one campaign in one
// script call and answers each, in order. It must not keep reqs.
// Errors: lua.ErrUnavailable means no claim was made; any other counts
// as lua.ErrOutcomeUnknown.
type Claimer interface {
	// ClaimAfter makes no claim if Redis is behind seen, the last
	// position that the caller saw.
	ClaimAfter(ctx context.Context, m lua.Meta, seen lua.Position, reqs []lua.ClaimRequest) (
		replies []lua.ClaimReply, view lua.CampaignView, err error)
}

// StateReader reads a campaign's state in Redis. Errors:
// lua.ErrAbsent, lua.ErrDamaged, and those of an unreachable Redis.
type StateReader interface {
	State(ctx context.Context, campaignID string) (lua.State, error)
}

// Loader loads campaigns into Redis. Errors: models.ErrNotFound if there is
// no such campaign; after any other the campaign is unavailable.
type Loader interface {
	Load(ctx context.Context, campaignID string) (lua.Meta, error)
	// Recover is Load for a caller that saw a later position than
	// Redis has now.
	Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error)
}

// Mover moves units between a campaign's shards.
type Mover interface {
	// Refill moves units to a shard, or proves that the campaign has
	// none. An error proves nothing.
	Refill(ctx context.Context, campaignID string, need models.Need) (models.Refill, error)
}

// Campaigns reads definitions of campaigns. Errors:
// models.ErrNotFound; any other means that MySQL doesn't answer.
type Campaigns interface {
	Get(ctx context.Context, id string) (models.Campaign, error)
}
