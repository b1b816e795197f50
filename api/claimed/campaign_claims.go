package claimed

import (
	"context"
	"errors"

	"dibs/api/wire"
	"dibs/models"
)

type (
	campaignClaimsInput struct {
		ID     string             `path:"id"`
		Status models.ClaimStatus `query:"status" enum:"claimed,redeemed,released,expired" doc:"claims of this status only"`
		Limit  int                `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		After  string             `query:"after" doc:"next of the page before"`
	}
	// CampaignClaimsOutput is the answer of GetCampaignClaims.
	CampaignClaimsOutput struct {
		Body struct {
			Claims []models.Claim `json:"claims" nullable:"false" doc:"newest first; of a campaign of several shards by shard"`
			Next   string         `json:"next,omitempty" doc:"absent on the last page"`
		}
	}
)

// GetCampaignClaims is GET /v1/campaigns/{id}/claims.
func (s *Routes) GetCampaignClaims(ctx context.Context, in *campaignClaimsInput) (*CampaignClaimsOutput, error) {
	p := wire.InvalidID("id", models.CheckCampaignID(in.ID))
	if p == nil && in.After != "" {
		p = wire.InvalidID("after", models.CheckClaimID(in.After))
	}
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	claims, err := s.cfg.Claims.ClaimsOfCampaign(ctx, models.CampaignClaimsQuery{
		CampaignID: in.ID, Status: in.Status, After: in.After, Limit: in.Limit + 1,
	})
	switch {
	case errors.Is(err, models.ErrNotFound):
		return nil, wire.Refuse(wire.CodeCampaignNotFound)
	case errors.Is(err, models.ErrID):
		return nil, wire.Invalid("after", "must be the next of a page")
	case err != nil:
		return nil, s.refuseLookup(ctx, err)
	}
	page, next := wire.Page(claims, in.Limit, func(last *models.Claim) string { return last.ID })
	out := &CampaignClaimsOutput{}
	out.Body.Next = next
	out.Body.Claims = append([]models.Claim{}, page...) // an empty page is [], not null
	return out, nil
}
