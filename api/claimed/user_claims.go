package claimed

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

// getUserClaims is GET /v1/users/{user_id}/claims.
func (s *Routes) GetUserClaims(ctx context.Context, in *userClaimsInput) (*userClaimsOutput, error) {
	q, p := in.query()
	if p != nil {
		return nil, p
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LookupTimeout)
	defer cancel()
	page, err := s.userClaims(ctx, q)
	if err != nil {
		return nil, s.lookupProblem(err)
	}
	out := &userClaimsOutput{}
	if len(page) > in.Limit {
		page = page[:in.Limit]
		out.Body.NextCursor = cursorOf(&page[in.Limit-1])
	}
	out.Body.Claims = append([]models.Claim{}, page...) // none is [], too
	return out, nil
}

func (in *userClaimsInput) query() (models.ClaimsQuery, *wire.Problem) {
	q := models.ClaimsQuery{UserID: in.UserID, CampaignID: in.CampaignID, Limit: in.Limit + 1} // one more tells whether there is a next page
	if err := models.CheckUserID(in.UserID); err != nil {
		return q, wire.Invalid("user_id", wire.IDReason(err))
	}
	if in.CampaignID != "" {
		if err := models.CheckCampaignID(in.CampaignID); err != nil {
			return q, wire.Invalid("campaign_id", wire.IDReason(err))
		}
	}
	if in.Cursor != "" {
		var ok bool
		if q.After, ok = placeOf(in.Cursor); !ok {
			return q, wire.Invalid("cursor", "is not one that a page gave")
		}
	}
	return q, nil
}

// userClaims is a page of a user's claims. Unsynced claims are looked for first: one that is not among them any more is in
// MySQL when MySQL is asked. A claim that is in both is as MySQL says.
func (s *Routes) userClaims(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error) {
	events, err := s.tail.ofUser(ctx, q.UserID)
	if err != nil {
		return nil, err
	}
	page, err := s.cfg.Claims.ClaimsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	page, unsynced := merge(page, events, &q)
	holds := make(map[string]int64)
	for i := range page {
		c := &page[i]
		if !unsynced[c.ID] {
			continue
		}
		ms, known := holds[c.CampaignID]
		if !known {
			if ms, err = s.cfg.HoldOf(ctx, c.CampaignID); err != nil {
				return nil, err
			}
			holds[c.CampaignID] = ms
		}
		*c = c.WithHold(ms)
	}
	return page, nil
}

// merge adds to a page of MySQL's what belongs there of the unsynced claims, and tells which these are.
func merge(page []models.Claim, events []*models.Event, q *models.ClaimsQuery) (merged []models.Claim, unsynced map[string]bool) {
	synced := make(map[string]bool, len(page))
	for i := range page {
		synced[page[i].ID] = true
	}
	unsynced = make(map[string]bool)
	for _, e := range events {
		c := e.Claim(0)
		before := q.After != (models.ClaimPlace{}) && models.PlaceOf(&c).Compare(q.After) <= 0
		if synced[c.ID] || before || q.CampaignID != "" && c.CampaignID != q.CampaignID {
			continue
		}
		page = append(page, c)
		unsynced[c.ID] = true
	}
	slices.SortFunc(page, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
	return page[:min(len(page), q.Limit)], unsynced
}

// A cursor is the place of a page's last claim: milliseconds since 1970, a point, and its id.
const cursorSeparator = "."

func cursorOf(c *models.Claim) string {
	return strconv.FormatInt(c.ClaimedAt.UnixMilli(), 10) + cursorSeparator + c.ID
}

func placeOf(cursor string) (models.ClaimPlace, bool) {
	msText, id, _ := strings.Cut(cursor, cursorSeparator)
	ms, err := strconv.ParseUint(msText, 10, 47) // until the year 6429
	if err != nil || models.CheckClaimID(id) != nil {
		return models.ClaimPlace{}, false
	}
	return models.ClaimPlace{ClaimedAt: time.UnixMilli(int64(ms)).UTC(), ID: id}, true
}
