package claimed

import (
	"context"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/models"
)

// GetUserClaims is GET /v1/users/{user_id}/claims.
func (s *Routes) GetUserClaims(ctx context.Context, in *userClaimsInput) (*UserClaimsOutput, error) {
	q, p := in.query()
	if p != nil {
		return nil, p
	}
	if !caller.Of(ctx).MayActFor(q.UserID) {
		return nil, wire.NotYours(caller.Of(ctx).User)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	claims, err := s.userClaims(ctx, q)
	if err != nil {
		return nil, s.refuseLookup(ctx, err)
	}
	page, next := wire.Page(claims, in.Limit, cursorOf)
	out := &UserClaimsOutput{}
	out.Body.NextCursor = next
	out.Body.Claims = append([]models.Claim{}, page...) // an empty page is [], not null
	return out, nil
}

func (in *userClaimsInput) query() (models.ClaimsQuery, *wire.Problem) {
	user, err := models.UserID(in.UserID)
	q := models.ClaimsQuery{UserID: user, CampaignID: in.CampaignID, Limit: in.Limit + 1}
	if err != nil {
		return q, wire.InvalidID("user_id", err)
	}
	if in.CampaignID != "" {
		if p := wire.InvalidID("campaign_id", models.CheckCampaignID(in.CampaignID)); p != nil {
			return q, p
		}
	}
	if in.Cursor != "" {
		var ok bool
		q.After, ok = parseCursor(in.Cursor)
		if !ok {
			return q, wire.Invalid("cursor", "must be the next_cursor of a page")
		}
	}
	return q, nil
}

// userClaims is a page of a user's claims, including all that were answered
// before the call.
func (s *Routes) userClaims(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error) {
	if err := s.awaitApplied(ctx); err != nil {
		return nil, err
	}
	return s.cfg.Claims.ClaimsOf(ctx, q)
}

// cursorSeparator separates the time of a page's last claim, in
// milliseconds since 1970, from its id.
const cursorSeparator = "."

func cursorOf(c *models.Claim) string {
	return strconv.FormatInt(c.ClaimedAt.UnixMilli(), 10) + cursorSeparator + c.ID
}

func parseCursor(cursor string) (models.ClaimPlace, bool) {
	msText, id, _ := strings.Cut(cursor, cursorSeparator)
	ms, err := strconv.ParseUint(msText, 10, 47) // until the year 6429
	if err != nil || models.CheckClaimID(id) != nil {
		return models.ClaimPlace{}, false
	}
	return models.ClaimPlace{ClaimedAt: time.UnixMilli(int64(ms)).UTC(), ID: id}, true
}
