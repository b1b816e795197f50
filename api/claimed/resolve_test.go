package claimed_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claimed"
	"dibs/internal/apitest"
	"dibs/models"
)

func aClaim(t *testing.T, h http.Handler, campaignID string) models.Claim {
	t.Helper()
	w := apitest.Ask(h, "POST", "/v1/campaigns/"+campaignID+"/claims", apitest.OneClaim)
	require.Equal(t, 201, w.Code, w.Body)
	var c models.Claim
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
	return c
}

func TestResolve_AnswersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, fake, api.Config{})
	post := func(id, verb, body string) (int, string) {
		w := apitest.Ask(h, "POST", "/v1/claims/"+id+"/"+verb, body)
		var p struct{ Code, Status, Detail string }
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return w.Code, p.Code + p.Status
	}
	redeemed, released := aClaim(t, h, "c1"), aClaim(t, h, "c1")
	for _, q := range []struct {
		id, verb, body string
		status         int
		says           string
	}{
		{redeemed.ID, "redeem", `{"order_id":"o1"}`, 200, "redeemed"}, {redeemed.ID, "redeem", `{"order_id":"o1"}`, 200, "redeemed"},
		{redeemed.ID, "redeem", `{"order_id":"o2"}`, 409, "already_redeemed"}, {redeemed.ID, "release", `{}`, 409, "already_redeemed"},
		{redeemed.ID, "reopen", `{"order_id":"o2"}`, 409, "already_redeemed"}, {redeemed.ID, "reopen", `{"reason":"x"}`, 422, "invalid"},
		{redeemed.ID, "extend", `{"by":"1m"}`, 409, "already_redeemed"},
		{redeemed.ID, "reopen", `{"order_id":"o1","reason":"refunded"}`, 200, "claimed"}, {redeemed.ID, "redeem", `{"order_id":"o3"}`, 200, "redeemed"},
		{released.ID, "reopen", `{"order_id":"o1"}`, 409, "not_redeemed"}, {released.ID, "extend", `{"by":"1m"}`, 422, "invalid"},
		{released.ID, "extend", `{}`, 422, "invalid"}, {released.ID, "extend", `{"by":"1us"}`, 422, "invalid"},
		{"none", "reopen", `{"order_id":"o1"}`, 404, "claim_not_found"}, {"none", "extend", `{"by":"1m"}`, 404, "claim_not_found"},
		{released.ID, "release", ``, 200, "released"}, {released.ID, "release", `{"reason":"changed my mind"}`, 200, "released"},
		{released.ID, "redeem", `{"order_id":"o1"}`, 409, "already_released"},
		{"none", "redeem", `{"order_id":"o1"}`, 404, "claim_not_found"}, {"none", "release", ``, 404, "claim_not_found"},
		{redeemed.ID, "redeem", `{}`, 422, "invalid"}, {redeemed.ID, "redeem", ``, 422, "invalid"},
		{redeemed.ID, "redeem", `{"order_id":"` + strings.Repeat("x", 129) + `"}`, 422, "invalid"},
		{redeemed.ID, "redeem", `{`, 400, "malformed"}, {redeemed.ID, "release", `{"reason":"` + strings.Repeat("x", 201) + `"}`, 422, "invalid"},
		{"a b", "release", ``, 422, "invalid"}, {redeemed.ID, "release", strings.Repeat(" ", claimed.BodyMax+1), 413, "too_large"},
	} {
		status, says := post(strings.ReplaceAll(q.id, " ", "%20"), q.verb, q.body)
		require.Equal(t, q.status, status, "%s %s: %s", q.verb, q.body, says)
		require.Equal(t, q.says, says, "%s %s", q.verb, q.body)
	}
	fake.Fail = errors.New("away")
	status, says := post(redeemed.ID, "redeem", `{"order_id":"o1"}`)
	require.Equal(t, []any{503, "unavailable"}, []any{status, says})
}

func TestResolve_APacketIsNeither(t *testing.T) {
	t.Parallel()
	c := apitest.Coupon("p1", 9)
	c.Kind = models.KindPacket
	fake := apitest.NewFake(c)
	h := apitest.NewServer(t, fake, api.Config{})
	made := aClaim(t, h, "p1")
	for _, verb := range []string{"redeem", "release"} {
		w := apitest.Ask(h, "POST", "/v1/claims/"+made.ID+"/"+verb, `{`+map[string]string{"redeem": `"order_id":"o"`}[verb]+`}`)
		require.Equal(t, 422, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "credited")
	}
}

// A decision about a claim that was just answered waits until MySQL has its
// row, and no longer.
func TestResolve_WaitsForTheRowOfAClaimThatWasJustMade(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		misses int64 // how often the claim has no row
		other  bool  // the claim doesn't exist
		wait   error
		status int
		code   string
	}{
		"it comes":             {1, false, nil, 200, ""},
		"it comes after all":   {1, false, errors.New("behind"), 503, "unavailable"},
		"it does not come":     {1 << 40, false, errors.New("behind"), 503, "unavailable"},
		"there is no such":     {1 << 40, true, nil, 404, "claim_not_found"},
		"whether is not known": {1 << 40, true, errors.New("away"), 503, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := apitest.NewFake(apitest.Coupon("c1", 9))
			h := apitest.NewServer(t, fake, api.Config{})
			made := aClaim(t, h, "c1")
			waits := 0
			fake.OnAwait = func(context.Context) error { waits++; return row.wait }
			fake.Absent.Store(row.misses)
			id := made.ID
			if row.other {
				id = "another"
			}
			w := apitest.Ask(h, "POST", "/v1/claims/"+id+"/redeem", `{"order_id":"o1"}`)
			require.Equal(t, row.status, w.Code, w.Body)
			require.Contains(t, w.Body.String(), row.code)
			require.Equal(t, 1, waits)
			if row.status == 503 {
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
		})
	}
}
