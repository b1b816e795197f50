package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

// A user's own JWT must claim, look up and release only for that user.
func TestUsers_TouchTheirOwnAlone(t *testing.T) {
	t.Parallel()
	takes, sign := apitest.Issuer(t)
	token := func(sub, scope string) string { return "Authorization: Bearer " + sign(sub, scope) }
	fake := apitest.NewFake(apitest.Coupon("c1", 100))
	h := apitest.NewServer(t, fake, api.Config{Tokens: api.Tokens{JWT: takes}})
	ada, eve, shop := token("ada", "dibs:user"), token("eve", "openid dibs:user"), token("shop", "dibs:storefront")
	ask := func(who, method, path, body, code string) []byte {
		t.Helper()
		w := apitest.Ask(h, method, path, body, who)
		if code == "" {
			require.Less(t, w.Code, 300, "%s %s: %s", method, path, w.Body)
		} else {
			apitest.RequireProblem(t, w.Code, w.Header(), w.Body.Bytes(), code)
		}
		return w.Body.Bytes()
	}
	var mine models.Claim
	require.NoError(t, json.Unmarshal(ask(ada, http.MethodPost, "/v1/campaigns/c1/claims", `{"user_id":"ada"}`, ""), &mine))
	require.Contains(t, string(ask(ada, http.MethodPost, "/v1/campaigns/c1/claims", `{}`, "")), `"user_id":"ada"`)
	require.Contains(t, string(ask(ada, http.MethodPost, "/v1/claims:batch", `{"claims":[{"campaign_id":"c1"}]}`, "")), `"user_id":"ada"`)
	ask(shop, http.MethodPost, "/v1/campaigns/c1/claims", `{}`, "invalid")
	fake.Mu.Lock()
	fake.Campaigns["c1"].Rows = []models.Claim{mine}
	fake.Mu.Unlock()
	sent := fake.Sent()
	ask(ada, http.MethodPost, "/v1/campaigns/c1/claims", `{"user_id":"ADA"}`, "forbidden")
	require.Equal(t, sent, fake.Sent(), "nothing was claimed")
	var batch struct{ Results []struct{ Status int } }
	require.NoError(t, json.Unmarshal(ask(ada, http.MethodPost, "/v1/claims:batch",
		`{"claims":[{"campaign_id":"c1","user_id":"ada"},{"campaign_id":"c1","user_id":"eve"},{"campaign_id":"c1","user_id":"ada"}]}`, ""), &batch))
	require.Equal(t, "[{201} {403} {201}]", fmt.Sprint(batch.Results))
	require.Equal(t, sent+2, fake.Sent())

	for _, who := range []string{ada, shop} {
		ask(who, http.MethodGet, "/v1/claims/"+mine.ID, "", "")
		ask(who, http.MethodGet, "/v1/users/ada/claims", "", "")
	}
	ask(eve, http.MethodGet, "/v1/claims/"+mine.ID, "", "forbidden")
	ask(eve, http.MethodGet, "/v1/users/ada/claims", "", "forbidden")
	ask(eve, http.MethodPost, "/v1/claims/"+mine.ID+"/release", "", "forbidden")
	ask(ada, http.MethodPost, "/v1/claims/"+mine.ID+"/redeem", `{"order_id":"o"}`, "forbidden")
	ask(ada, http.MethodGet, "/v1/campaigns", "", "forbidden")
	ask(ada, http.MethodGet, "/v1/campaigns/c1", "", "")
	ask(ada, http.MethodGet, "/v1/campaigns/c1/stock", "", "")
	ask(ada, http.MethodGet, "/v1/campaigns/c1/watch", "", "forbidden")
	fake.Put(models.Campaign{ID: "secret", Kind: models.KindCoupon, Total: 9, Status: models.StatusPaused})
	ask(ada, http.MethodGet, "/v1/campaigns/secret", "", "campaign_not_found")
	ask(ada, http.MethodGet, "/v1/campaigns/secret/stock", "", "campaign_not_found")
	ask(shop, http.MethodGet, "/v1/campaigns/secret/stock", "", "")
	ask(ada, http.MethodPost, "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "forbidden")
	ask(eve, http.MethodGet, "/v1/claims/none", "", "claim_not_found")
	require.Empty(t, fake.Decided)
	ask(ada, http.MethodPost, "/v1/claims/"+mine.ID+"/release", "", "")
	require.Equal(t, []string{"release "}, fake.Decided)
	ask(token("root", "dibs:admin"), http.MethodPost, "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "")
}
