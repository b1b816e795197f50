package claiming_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api"
	"dibs/api/claiming/form"
	"dibs/api/wire"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

type badBody struct {
	name, body  string
	status      int
	code, field string
}

// What JSON and a name may be is tested in wire and models.
func TestBadClaims_AreRefusedByNameAndReachNobody(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{})
	for _, c := range []badBody{
		{"empty", ``, 400, "malformed", ""},
		{"nested too deep", `{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, 400, "malformed", ""},

		{"no user", `{}`, 422, "invalid", "user_id"},
		{"unknown field", `{"user_id":"u","foo":1}`, 422, "invalid", "foo"},
		{"unknown field of a long name", `{"user_id":"u","x` + strings.Repeat("é", 100) + `":1}`, 422, "invalid", "x" + strings.Repeat("é", 31) + "…"},
		{"user with a blank behind it", `{"user_id":"u "}`, 422, "invalid", "user_id"},
		{"subject with a blank behind it", `{"user_id":"u","subjects":{"mail":"u "}}`, 422, "invalid", "subjects.mail"},
		{"quantity a string", `{"user_id":"u","quantity":"1"}`, 422, "invalid", "quantity"},
		{"quantity zero", `{"user_id":"u","quantity":0}`, 422, "invalid", "quantity"},
		{"quantity above the most", `{"user_id":"u","quantity":1000001}`, 422, "invalid", "quantity"},

		{"body too large", `{"user_id":"` + strings.Repeat("x", 4096) + `"}`, 413, "too_large", ""},
	} {
		p := apitest.Refused(t, c.status, c.code, h, "POST", "/v1/campaigns/c1/claims", c.body)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, fake.Sent())
	require.Zero(t, fake.StateReads, "not even the campaign was looked up")
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code, "control: a good one gets through")
}

func TestBadBatches(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10_000))
	h := apitest.NewServer(t, fake, api.Config{})
	good := `{"campaign_id":"c1","user_id":"u"}`
	many := func(n int) string { return `{"claims":[` + strings.TrimSuffix(strings.Repeat(good+",", n), ",") + `]}` }
	for _, c := range []badBody{
		{"no claims", `{}`, 422, "invalid", "claims"},
		{"empty", `{"claims":[]}`, 422, "invalid", "claims"},
		{"1,001 claims", many(1001), 422, "invalid", "claims"},
		{"truncated", `{"claims":[` + good, 400, "malformed", ""},
		{"broken inside a claim", `{"claims":[` + good + `,{"campaign_id":}]}`, 400, "malformed", ""},
		{"too large", `{"claims":[` + strings.Repeat(" ", form.BatchBodyMax) + `]}`, 413, "too_large", ""},
	} {
		p := apitest.Refused(t, c.status, c.code, h, "POST", "/v1/claims:batch", c.body)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, fake.Sent())
	w := apitest.Answered(t, 200, h, "POST", "/v1/claims:batch", many(1000))
	require.Equal(t, 1000, strings.Count(w.Body.String(), `"status":201`), "control: 1,000 are fine")
	for _, call := range fake.Calls {
		require.LessOrEqual(t, len(call), 128)
	}
}

// The script refuses a whole call for one such claim, and so other
// users' claims.
func TestBadClaims_APacketClaimIsOfOne(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(models.Campaign{ID: "p", Kind: models.KindPacket, Total: 10})
	h := apitest.NewServer(t, fake, api.Config{})
	w := apitest.Ask(h, "POST", "/v1/campaigns/p/claims", `{"user_id":"u","quantity":2}`)
	require.Equal(t, "quantity", apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)
	require.Zero(t, fake.Sent())
}

func TestAppendClaim_IsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := models.Claim{
			ID: rapid.String().Draw(t, "id"), CampaignID: rapid.StringMatching(`[a-z<>&"\\]{0,9}`).Draw(t, "campaign"),
			UserID: rapid.String().Draw(t, "user"), Quantity: rapid.Int64().Draw(t, "quantity"), Seq: rapid.Int64().Draw(t, "seq"),
			Status: "claimed", ClaimedAt: models.TimeFromMs(rapid.Int64Range(0, 253402300799999).Draw(t, "at")),
			PacketID: rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "packet"), Currency: rapid.SampledFrom([]string{"", "EUR"}).Draw(t, "currency"),
		}
		if rapid.Bool().Draw(t, "amount") {
			amount := rapid.Int64().Draw(t, "minor")
			c.Amount = &amount
		}
		if rapid.Bool().Draw(t, "held") {
			at := models.NewTime(c.ClaimedAt.Add(15 * time.Minute))
			c.ExpiresAt = &at
		}
		want, err := json.Marshal(c)
		require.NoError(t, err)
		require.Equal(t, string(want), string(form.AppendClaim(nil, &c)))
	})
}

func TestOpenAPI_RequestsOfClaimsNameEveryFieldThatIsDecoded(t *testing.T) {
	t.Parallel()
	all := map[string][]string{}
	for schema, fields := range map[string][]wire.Field{
		"NewClaim":        new(form.ClaimBody).Fields(),
		"NewClaims":       new(form.BatchBody).Fields(),
		"NewClaimOfBatch": new(form.BatchClaim).Fields(),
	} {
		for _, f := range fields {
			all[schema] = append(all[schema], f.Name)
		}
	}
	apitest.RequireFields(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}), all)
}
