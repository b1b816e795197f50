package claimed

import (
	"context"
	"errors"
	"fmt"
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
		return nil, wire.NotYours(caller.Of(ctx).User)
	}
	return &ClaimOutput{c}, nil
}

// findClaim reads from MySQL, and again once that has applied the claim
// streams. A claim that was answered before the call has a row then.
// Errors: models.ErrNotFound if the claim doesn't exist; any other means
// that this isn't known.
func (s *Routes) findClaim(ctx context.Context, id string) (models.Claim, error) {
	c, err := s.cfg.Claims.Claim(ctx, id)
	if !errors.Is(err, models.ErrNotFound) {
		return c, err
	}
	if err := s.awaitApplied(ctx); err != nil {
		return c, err
	}
	return s.cfg.Claims.Claim(ctx, id)
}

// errUnsynced means MySQL may lack rows of answered claims.
var errUnsynced = errors.New("claimed: mysql has not applied the claim streams yet")

// awaitApplied waits until every claim answered before the call has a row.
// Errors: errUnsynced, wrapped.
func (s *Routes) awaitApplied(ctx context.Context) error {
	if _, err := s.applied.get(ctx); err != nil {
		return fmt.Errorf("%w: %w", errUnsynced, err)
	}
	return nil
}

func (s *Routes) refuseLookup(ctx context.Context, err error) *wire.Problem {
	if errors.Is(err, models.ErrNotFound) {
		return wire.Refuse(wire.CodeClaimNotFound)
	}
	s.logSome.Do(func() {
		s.cfg.Logger.WarnContext(ctx, "claims could not be looked up; are mysql and redis up?", slog.Any("error", err))
	})
	return &wire.Problem{
		Code: wire.CodeUnavailable, Detail: "MySQL is behind, or MySQL or Redis does not answer, so it is not known " +
			"which claims exist. Send the request again.",
	}
}
