package claimed

import (
	"context"
	"errors"
	"log/slog"

	"dibs/api/wire"
	"dibs/models"
)

type (
	claimInput struct {
		ID string `path:"id"`
	}
	claimOutput struct{ Body models.Claim }

	userClaimsInput struct {
		UserID     string `path:"user_id" doc:"printable characters, percent-encoded: a slash is %2F"`
		CampaignID string `query:"campaign_id" doc:"claims of this campaign only"`
		Limit      int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		Cursor     string `query:"cursor" doc:"next_cursor of the page before"`
	}
	userClaimsOutput struct {
		Body struct {
			Claims     []models.Claim `json:"claims" nullable:"false" doc:"newest first"`
			NextCursor string         `json:"next_cursor,omitempty" doc:"absent on the last page"`
		}
	}
)

// getClaim is GET /v1/claims/{id}.
func (s *Routes) GetClaim(ctx context.Context, in *claimInput) (*claimOutput, error) {
	if err := models.CheckClaimID(in.ID); err != nil {
		return nil, wire.Invalid("id", wire.IDReason(err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	c, err := s.findClaim(ctx, in.ID)
	if err != nil {
		return nil, s.lookupProblem(err)
	}
	return &claimOutput{c}, nil
}

// findClaim asks MySQL first, which is the authority for what became of a claim, then looks among the unsynced claims. What
// is in neither may have gone from there to MySQL in between, so MySQL has the last word. Errors: models.ErrNotFound when
// there is surely no such claim; any other means that this is not known now.
func (s *Routes) findClaim(ctx context.Context, id string) (models.Claim, error) {
	first, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout/4) // MySQL may hang, and the claim be unsynced for that reason
	c, err := s.cfg.Claims.Claim(first, id)
	cancel()
	if err == nil {
		return c, nil
	}
	event, tailErr := s.tail.find(ctx, id)
	if event != nil {
		holdForMs, err := s.cfg.HoldOf(ctx, event.CampaignID)
		return event.Claim(holdForMs), err
	}
	c, err = s.cfg.Claims.Claim(ctx, id)
	if tailErr != nil && errors.Is(err, models.ErrNotFound) {
		err = tailErr
	}
	return c, err
}

// lookupProblem is the refusal of a look-up. It is the end of the error's way.
func (s *Routes) lookupProblem(err error) *wire.Problem {
	if errors.Is(err, models.ErrNotFound) {
		return &wire.Problem{Code: wire.CodeClaimNotFound}
	}
	s.complain.Do(func() { s.log.Warn("look-up failed", slog.Any("error", err)) })
	return &wire.Problem{Code: wire.CodeUnavailable, Detail: "Whether there is such a claim is not known now. Ask again."}
}
