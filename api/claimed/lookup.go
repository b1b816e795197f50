package claimed

import (
	"context"
	"errors"
	"log/slog"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/models"
)

type (
	claimInput struct {
		ID string `path:"id"`
	}
	// ClaimOutput is the answer of GetClaim.
	ClaimOutput struct{ Body models.Claim }

	userClaimsInput struct {
		UserID     string `path:"user_id" doc:"as in NewClaim, percent-encoded: a slash is %2F"`
		CampaignID string `query:"campaign_id" doc:"claims of this campaign only"`
		Limit      int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		Cursor     string `query:"cursor" doc:"next_cursor of the page before"`
	}
	// UserClaimsOutput is the answer of GetUserClaims.
	UserClaimsOutput struct {
		Body struct {
			Claims     []models.Claim `json:"claims" nullable:"false" doc:"newest first"`
			NextCursor string         `json:"next_cursor,omitempty" doc:"absent on the last page"`
		}
	}
)

// GetClaim is GET /v1/claims/{id}.
func (s *Routes) GetClaim(ctx context.Context, in *claimInput) (*ClaimOutput, error) {
	if p := wire.InvalidID("id", models.CheckClaimID(in.ID)); p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	c, err := s.findClaim(ctx, in.ID)
	if err != nil {
		return nil, s.refuseLookup(ctx, err)
	}
	if !caller.Of(ctx).MayActFor(c.UserID) {
		return nil, wire.Refuse(wire.CodeForbidden)
	}
	return &ClaimOutput{c}, nil
}

// findClaim asks MySQL first, then looks among the unsynced claims, then asks MySQL again: a claim may have gone from there to
// MySQL in between. Errors: models.ErrNotFound when the claim does not exist; any other means that this is not known.
func (s *Routes) findClaim(ctx context.Context, id string) (models.Claim, error) {
	first, cancel := context.WithTimeout(ctx, lookupTimeout/4) // a MySQL that hangs is why the claim is unsynced
	c, err := s.cfg.Claims.Claim(first, id)
	cancel()
	if err == nil {
		return c, nil
	}
	event, unsyncedErr := s.unsynced.find(ctx, id)
	if event != nil {
		holdForMs, err := s.cfg.HoldOf(ctx, event.CampaignID)
		return event.Claim(holdForMs), err
	}
	c, err = s.cfg.Claims.Claim(ctx, id)
	if unsyncedErr != nil && errors.Is(err, models.ErrNotFound) {
		err = unsyncedErr
	}
	return c, err
}

// refuseLookup is the refusal of a look-up. It logs the error.
func (s *Routes) refuseLookup(ctx context.Context, err error) *wire.Problem {
	if errors.Is(err, models.ErrNotFound) {
		return wire.Refuse(wire.CodeClaimNotFound)
	}
	s.logSome.Do(func() {
		s.cfg.Logger.WarnContext(ctx, "claims could not be looked up; are mysql and redis up?", slog.Any("error", err))
	})
	return &wire.Problem{
		Code: wire.CodeUnavailable, Detail: "MySQL or Redis does not answer, so it is not known which claims exist. Send the request again.",
	}
}
