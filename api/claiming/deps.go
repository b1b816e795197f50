package claiming

import (
	"context"

	"dibs/lua"
	"dibs/models"
)

// Claimer runs up to lua.ClaimsMax claims of one campaign in one script
// call and answers each, in order. It must not keep reqs. Errors:
// lua.ErrUnavailable (no claim was made); any other is taken for
// lua.ErrOutcomeUnknown.
type Claimer interface {
	// ClaimAfter makes no claim when Redis is behind seen, the position
	// that the caller saw last.
	ClaimAfter(ctx context.Context, m lua.Meta, seen lua.Position, reqs []lua.ClaimRequest) (
		replies []lua.ClaimReply, view lua.CampaignView, err error)
}

// StateReader reads what Redis holds of a campaign. Errors: lua.ErrAbsent,
// lua.ErrDamaged and those of a Redis that is away.
type StateReader interface {
	State(ctx context.Context, campaignID string) (lua.State, error)
}

// Loader loads campaigns into Redis. Errors: models.ErrNotFound when there
// is no such campaign; any other leaves the campaign unavailable.
type Loader interface {
	Load(ctx context.Context, campaignID string) (lua.Meta, error)
	// Recover is Load for a caller that saw a later position than Redis
	// has now.
	Recover(ctx context.Context, campaignID string, seen lua.Position) (lua.Meta, error)
}

// Mover moves units between the shards of a campaign.
type Mover interface {
	// Refill brings units to a shard, or says that the campaign has none.
	// Any error says that nothing can be said.
	Refill(ctx context.Context, campaignID string, need models.Need) (models.Refill, error)
}

// Campaigns reads the definitions of campaigns. Errors:
// models.ErrNotFound; any other means that MySQL does not answer.
type Campaigns interface {
	Get(ctx context.Context, id string) (models.Campaign, error)
}
