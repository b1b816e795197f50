package claimed_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/models"
)

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
	page := get("c1/claims?limit=3", "")
	for pages := 1; ; pages++ {
		for _, c := range page.Claims {
			ids = append(ids, c.ID)
		}
		if page.Next == "" {
			require.Equal(t, 3, pages)
			break
		}
		page = get("c1/claims?limit=3&after="+page.Next, "")
	}
	require.Equal(t, []string{"id-6", "id-5", "id-4", "id-3", "id-2", "id-1", "id-0"}, ids)
	require.Len(t, get("c1/claims?status=released", "").Claims, 3)
	require.NotNil(t, get("empty/claims", "").Claims)
	get("nowhere/claims", "campaign_not_found")
	get("c1/claims?status=lost", "invalid")
	get("c1/claims?after=none", "invalid")
	get("c1/claims?after=%00", "invalid")
	get("c1/claims?limit=0", "invalid")
	fake.Fail = errors.New("mysql is away")
	get("c1/claims", "unavailable")
}
