package claiming

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

// campaignGetter is a part of Campaigns.
type campaignGetter interface {
	Get(ctx context.Context, id string) (models.Campaign, error)
}
