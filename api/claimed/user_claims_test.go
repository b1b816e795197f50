package claimed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

type userRows struct {
	*apitest.Fake

	rows []models.Claim
}

func (s *userRows) ClaimsOf(_ context.Context, q models.ClaimsQuery) (page []models.Claim, err error) {
	for _, c := range s.rows {
		after := q.After == (models.ClaimPlace{}) || models.PlaceOf(&c).Compare(q.After) > 0
		if c.UserID == q.UserID && after && (q.CampaignID == "" || q.CampaignID == c.CampaignID) {
			page = append(page, c)
		}
	}
	slices.SortFunc(page, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
	return page[:min(q.Limit, len(page))], s.Fail
}

// add makes a claim. Claims may share ms.
func (s *userRows) add(id, user, campaign string, ms int64) models.Claim {
	c := models.Claim{
		ID: id, CampaignID: campaign, UserID: user, Quantity: 1, Seq: int64(len(s.rows) + 1), Status: models.ClaimClaimed,
		ClaimedAt: models.TimeFromMs(ms),
	}
	s.rows = append(s.rows, c)
	return c
}

func (s *userRows) handler(t require.TestingT) http.Handler {
	deps := s.Deps()
	deps.Claims = s
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	return apitest.AtHome(server.Handler())
}

type claimsPage struct {
	Claims     []models.Claim
	NextCursor string `json:"next_cursor"`
}

func readPage(t require.TestingT, h http.Handler, query url.Values) (page claimsPage) {
	w := apitest.Ask(h, "GET", "/v1/users/u/claims?"+query.Encode(), "")
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	return page
}

// The pages must contain each claim once, newest first, however many share
// a time.
func TestUserClaims_PagesHoldEachClaimOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &userRows{Fake: apitest.NewFake(apitest.Coupon("c0", 9), apitest.Coupon("c1", 9))}
		of := rapid.SampledFrom([]string{"", "c1"}).Draw(t, "campaign")
		var want []models.Claim
		for i := range rapid.IntRange(0, 12).Draw(t, "claims") {
			user := rapid.SampledFrom([]string{"u", "u", "u", "v"}).Draw(t, "user")
			campaign := rapid.SampledFrom([]string{"c0", "c1"}).Draw(t, "of")
			c := s.add(fmt.Sprint("claim", i), user, campaign, 1_700_000_000_000+rapid.Int64Range(0, 3).Draw(t, "ms"))
			if user == "u" && (of == "" || of == campaign) {
				want = append(want, c)
			}
		}
		slices.SortFunc(want, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
		h, limit := s.handler(t), rapid.IntRange(1, 5).Draw(t, "limit")
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		if of != "" {
			query.Set("campaign_id", of)
		}
		var got []models.Claim
		for pages := 1; ; pages++ {
			page := readPage(t, h, query)
			got = append(got, page.Claims...)
			if page.NextCursor == "" {
				require.Equal(t, max(1, (len(want)+limit-1)/limit), pages, "a full last page knows that it is the last")
				break
			}
			require.Len(t, page.Claims, limit)
			query.Set("cursor", page.NextCursor)
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
	})
}

// A claim answered before the call must be on the page, so its row is
// awaited.
func TestUserClaims_WaitsForWhatWasAnswered(t *testing.T) {
	t.Parallel()
	s := &userRows{Fake: apitest.NewFake(apitest.Coupon("c0", 9))}
	s.OnAwait = func(context.Context) error { s.add("late", "u", "c0", 1_700_000_000_000); return nil }
	require.Len(t, readPage(t, s.handler(t), nil).Claims, 1)
	s.OnAwait = func(context.Context) error { return errors.New("behind") }
	w := apitest.Ask(s.handler(t), "GET", "/v1/users/u/claims", "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
	require.Equal(t, "1", w.Header().Get("Retry-After"))
}

func TestCampaignClaims_PagesFollowOneAnother(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10), apitest.Coupon("empty", 10))
	for i := range 7 {
		status := []models.ClaimStatus{models.ClaimClaimed, models.ClaimReleased}[i%2]
		fake.Campaigns["c1"].Rows = append(fake.Campaigns["c1"].Rows, models.Claim{ID: fmt.Sprint("id-", i), Status: status})
	}
	h := apitest.NewServer(t, fake, api.Config{})
	get := func(query string, code string) (page struct {
		Claims []struct{ ID string }
		Next   string
	}) {
		t.Helper()
		w := apitest.Ask(h, "GET", "/v1/campaigns/"+query, "")
		if code != "" {
			apitest.RequireProblem(t, w.Code, w.Header(), w.Body.Bytes(), code)
			return page
		}
		require.Equal(t, 200, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
		return page
	}
	var ids []string
	after := ""
	for range 3 {
		page := get("c1/claims?limit=3&after="+after, "")
		for _, c := range page.Claims {
			ids = append(ids, c.ID)
		}
		after = page.Next
	}
	require.Empty(t, after)
	require.Equal(t, []string{"id-6", "id-5", "id-4", "id-3", "id-2", "id-1", "id-0"}, ids)
	require.Len(t, get("c1/claims?status=released", "").Claims, 3)
	require.NotNil(t, get("empty/claims", "").Claims)
	get("nowhere/claims", "campaign_not_found")
	get("c1/claims?status=lost", "invalid")
	get("c1/claims?after=none", "invalid")
	fake.Fail = errors.New("mysql is away")
	get("c1/claims", "unavailable")
}
