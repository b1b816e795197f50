package claimed

import (
	"context"
	"slices"
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
		return nil, wire.Refuse(wire.CodeForbidden)
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
		q.After, ok = placeOf(in.Cursor)
		if !ok {
			return q, wire.Invalid("cursor", "must be the next_cursor of a page")
		}
	}
	return q, nil
}

// userClaims is a page of a user's claims. It looks for unsynced claims first: one that is no longer among them is in MySQL when
// MySQL is asked. A claim that is in both is as MySQL says.
func (s *Routes) userClaims(ctx context.Context, q models.ClaimsQuery) ([]models.Claim, error) {
	events, err := s.unsynced.ofUser(ctx, q.UserID)
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
			ms, err = s.cfg.HoldOf(ctx, c.CampaignID)
			if err != nil {
				return nil, err
			}
			holds[c.CampaignID] = ms
		}
		*c = c.WithHold(ms)
	}
	return page, nil
}

// merge adds the unsynced claims that belong on a page of MySQL's, and reports which these are.
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

// cursorSeparator stands in a cursor between the time of a page's last claim, in milliseconds since 1970, and its id.
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
