package cmd_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/models"
)

func jsonOf(t require.TestingT, body any) string {
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return string(text)
}

// A name that is accepted for a user, a subject, a key or an order must be
// the same in every route, however it is encoded: it counts, replays, is
// listed and redeems. A refused name must be refused by every route.
func TestANameThatIsTakenIsFoundByEveryRoute(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":1000000,"per_user":1,"limits":[{"by":"device","per":"all","max":1}]}`)
	serve.claim("spring") // loads it
	claims := serve.url + "/v1/campaigns/spring/claims"
	parts := []string{
		"a", "B", "\u00eb", "e\u0308", "\u1100\u1161", "\u5b57", "\U0001f600", " ", "/", ".", "..", "%2F", "%", "?", "#", ";", "+", "&", "\"", "\\", "<", "=",
		"\ufe0f", "\u3164", "\u2800", "\u00a0", "\u200b", "\t",
	}
	taken := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		name := ""
		for range rapid.IntRange(1, 4).Draw(rt, "parts") {
			name += rapid.SampledFrom(parts).Draw(rt, "part")
		}
		kept, wrong := models.UserID(name)
		list := serve.url + "/v1/users/" + url.PathEscape(name) + "/claims"
		body := map[string]any{"user_id": name, "subjects": map[string]string{"device": "d " + name + "."}}
		if wrong != nil {
			for field, refused := range map[string]any{
				"user_id":         map[string]any{"user_id": name},
				"subjects.device": map[string]any{"user_id": "ada", "subjects": map[string]string{"device": name}},
			} {
				got := call(t, http.MethodPost, claims, jsonOf(t, refused))
				if dots := name == "." || name == ".."; dots && field != "user_id" {
					continue // subjects aren't in paths
				}
				require.Equal(t, http.StatusUnprocessableEntity, got.status, "%+q: %s", name, got.body)
				require.Contains(t, got.body, `"field":"`+field+`"`)
			}
			return
		}
		if taken[kept] {
			return
		}
		taken[kept] = true
		key := "k " + kept
		made := call(t, http.MethodPost, claims, jsonOf(t, body), "Idempotency-Key: "+key)
		require.Equal(t, http.StatusCreated, made.status, "%+q: %s", name, made.body)
		var claim models.Claim
		made.into(t, &claim)
		require.Equal(t, kept, claim.UserID)

		body["campaign_id"] = "spring"
		body["idempotency_key"] = "k " + name
		batch := serve.post("/claims:batch", jsonOf(t, map[string]any{"claims": []any{body}}))
		require.Contains(t, batch.body, claim.ID, "the key is the same in a batch")
		delete(body, "idempotency_key")
		body["user_id"] = "other " + name
		batch = serve.post("/claims:batch", jsonOf(t, map[string]any{"claims": []any{body}}))
		require.Contains(t, batch.body, `"by":"device"`)

		var listed struct{ Claims []models.Claim }
		call(t, http.MethodGet, list, "").into(t, &listed)
		require.Len(t, listed.Claims, 1, "%+q", name)
		require.Equal(t, claim.ID, listed.Claims[0].ID)
		for _, order := range []string{name, kept} {
			got := serve.post("/claims/"+claim.ID+"/redeem", jsonOf(t, map[string]any{"order_id": order}))
			require.Contains(t, got.body, jsonOf(t, kept))
		}
	})
	require.NotEmpty(t, taken)

	// A blank at a key's end must make no second claim.
	serve.post("/campaigns", `{"id":"keys","kind":"coupon","total":9}`)
	first := serve.post("/campaigns/keys/claims", `{"user_id":"ada"}`, "Idempotency-Key: k ")
	require.Equal(t, first.body, serve.post("/campaigns/keys/claims", `{"user_id":"ada"}`, "Idempotency-Key: k").body)
	batch := serve.post("/claims:batch", `{"claims":[{"campaign_id":"keys","user_id":"ada","idempotency_key":"k "}]}`)
	require.Contains(t, batch.body, `"field":"idempotency_key"`)
	got := call(t, http.MethodPost, serve.url+"/v1/campaigns/keys/claims", `{"user_id":"ada"}`, "Idempotency-Key: k\ufe0f")
	require.Contains(t, got.body, `"field":"Idempotency-Key"`)
}
