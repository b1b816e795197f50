package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/auth"
	"dibs/internal/apitest"
	"dibs/models"
)

// issuer is an issuer of JWTs, and the settings that take them.
func issuer(t *testing.T) (api.Tokens, func(sub, scope string) string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := jwk.Import(key.Public())
	require.NoError(t, err)
	set := jwk.NewSet()
	require.NoError(t, set.AddKey(public))
	text, err := json.Marshal(set)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "jwks.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	token := func(sub, scope string) string {
		made, err := jwt.NewBuilder().Issuer("https://id.example").Audience([]string{"dibs"}).Subject(sub).Claim("scope", scope).
			Expiration(time.Now().Add(time.Hour)).Build()
		require.NoError(t, err)
		signed, err := jwt.Sign(made, jwt.WithKey(jwa.ES256(), key))
		require.NoError(t, err)
		return "Authorization: Bearer " + string(signed)
	}
	return api.Tokens{JWT: auth.JWT{File: file, Issuer: "https://id.example", Audience: "dibs"}}, token
}

// A user's own JWT claims, looks up and releases for that user, and touches nobody else's.
func TestUsers_TouchTheirOwnAlone(t *testing.T) {
	t.Parallel()
	tokens, token := issuer(t)
	room := apitest.NewRoom(apitest.Coupon("c1", 100))
	h := apitest.NewServer(t, room, api.Config{Tokens: tokens})
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
	room.Mu.Lock()
	room.Campaigns["c1"].Rows = []models.Claim{mine}
	room.Mu.Unlock()
	sent := room.Sent()
	for _, body := range []string{`{"user_id":"eve"}`, `{"user_id":"ADA"}`, `{"user_id":"ada."}`} {
		ask(ada, http.MethodPost, "/v1/campaigns/c1/claims", body, "forbidden")
	}
	require.Equal(t, sent, room.Sent(), "nothing was claimed")
	var batch struct{ Results []struct{ Status int } }
	require.NoError(t, json.Unmarshal(ask(ada, http.MethodPost, "/v1/claims:batch",
		`{"claims":[{"campaign_id":"c1","user_id":"ada"},{"campaign_id":"c1","user_id":"eve"},{"campaign_id":"c1","user_id":"ada"}]}`, ""), &batch))
	require.Equal(t, "[{201} {403} {201}]", fmt.Sprint(batch.Results))
	require.Equal(t, sent+2, room.Sent())

	for _, who := range []string{ada, shop} {
		ask(who, http.MethodGet, "/v1/claims/"+mine.ID, "", "")
		ask(who, http.MethodGet, "/v1/users/ada/claims", "", "")
	}
	ask(eve, http.MethodGet, "/v1/claims/"+mine.ID, "", "forbidden")
	ask(eve, http.MethodGet, "/v1/users/ada/claims", "", "forbidden")
	ask(eve, http.MethodPost, "/v1/claims/"+mine.ID+"/release", "", "forbidden")
	ask(ada, http.MethodPost, "/v1/claims/"+mine.ID+"/redeem", `{"order_id":"o"}`, "forbidden")
	ask(ada, http.MethodGet, "/v1/campaigns", "", "forbidden")
	ask(ada, http.MethodGet, "/v1/campaigns/c1/stock", "", "forbidden")
	ask(ada, http.MethodPost, "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "forbidden")
	ask(eve, http.MethodGet, "/v1/claims/none", "", "claim_not_found")
	require.Equal(t, models.ClaimClaimed, room.Campaigns["c1"].Rows[0].Status)
	ask(ada, http.MethodPost, "/v1/claims/"+mine.ID+"/release", "", "")
	require.Equal(t, models.ClaimReleased, room.Campaigns["c1"].Rows[0].Status)
	ask(token("root", "dibs:admin"), http.MethodPost, "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "")
}
