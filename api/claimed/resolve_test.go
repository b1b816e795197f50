package claimed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claimed"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

func aClaim(t *testing.T, h http.Handler, campaignID string) models.Claim {
	t.Helper()
	w := apitest.Answered(t, 201, h, "POST", "/v1/campaigns/"+campaignID+"/claims", apitest.OneClaim)
	var c models.Claim
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
	return c
}

func TestResolve_AnswersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, fake, api.Config{})
	made := "/v1/claims/" + aClaim(t, h, "c1").ID
	for resolved, code := range map[models.Resolved]string{
		models.ResolvedNow: "", models.ResolvedBefore: "", models.ResolvedAlreadyRedeemed: "already_redeemed",
		models.ResolvedAlreadyReleased: "already_released", models.ResolvedNotRedeemed: "not_redeemed", models.ResolvedNoHold: "invalid",
		models.ResolvedPacket: "invalid",
	} {
		fake.Resolved = resolved
		for verb, body := range map[string]string{
			"redeem": `{"order_id":"o1"}`, "reopen": `{"order_id":"o1","reason":"refunded"}`, "extend": `{"by":"1m"}`,
			"release": `{"reason":"late"}`,
		} {
			status := map[string]int{"": 200, "invalid": 422}[code]
			w := apitest.Answered(t, cmp.Or(status, 409), h, "POST", made+"/"+verb, body)
			require.Equal(t, code != "", strings.Contains(w.Body.String(), `"code":"`+code+`"`), w.Body)
		}
	}
	require.Subset(t, fake.Decided, []string{"redeem o1", "reopen o1 refunded", "extend 1m0s", "release late"})
	for _, q := range []struct {
		path, body string
		status     int
		code       string
	}{
		{made + "/redeem", `{}`, 422, "invalid"}, {made + "/redeem", ``, 422, "invalid"}, {made + "/redeem", `{`, 400, "malformed"},
		{made + "/reopen", `{"reason":"x"}`, 422, "invalid"}, {made + "/extend", `{"by":"1us"}`, 422, "invalid"},
		{made + "/release", `{"reason":"` + strings.Repeat("x", 201) + `"}`, 422, "invalid"},
		{made + "/release", strings.Repeat(" ", claimed.BodyMax+1), 413, "too_large"},
		{"/v1/claims/a%20b/release", ``, 422, "invalid"}, {"/v1/claims/none/release", ``, 404, "claim_not_found"},
	} {
		apitest.Refused(t, q.status, q.code, h, "POST", q.path, q.body)
	}
	fake.Fail = errors.New("away")
	apitest.Refused(t, 503, "unavailable", h, "POST", made+"/redeem", `{"order_id":"o1"}`)
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
		"it does not come":     {1 << 40, false, errors.New("behind"), 503, "unavailable"},
		"there is no such":     {1 << 40, true, nil, 404, "claim_not_found"},
		"whether is not known": {1 << 40, true, errors.New("away"), 503, "unavailable"},
	} {
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
		w := apitest.Answered(t, row.status, h, "POST", "/v1/claims/"+id+"/redeem", `{"order_id":"o1"}`)
		require.Contains(t, w.Body.String(), row.code, name)
		require.Equal(t, 1, waits, name)
	}
}
