package claiming_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/internal/apitest"
	"dibs/models"
)

type badBody struct {
	name, body  string
	status      int
	code, field string
}

func badClaims() []badBody {
	long := strings.Repeat("x", 129)
	return []badBody{
		{"empty", ``, 400, "malformed", ""},
		{"spaces only", `  `, 400, "malformed", ""},
		{"null", `null`, 400, "malformed", ""},
		{"an array", `[{"user_id":"u"}]`, 400, "malformed", ""},
		{"a string", `"u"`, 400, "malformed", ""},
		{"truncated in a string", `{"user_id":"u`, 400, "malformed", ""},
		{"truncated after the value", `{"user_id":"u"`, 400, "malformed", ""},
		{"truncated after the name", `{"user_id"`, 400, "malformed", ""},
		{"truncated in an escape", `{"user_id":"\u00`, 400, "malformed", ""},
		{"trailing garbage", `{"user_id":"u"}x`, 400, "malformed", ""},
		{"two objects", `{"user_id":"u"}{"user_id":"v"}`, 400, "malformed", ""},
		{"trailing comma", `{"user_id":"u",}`, 400, "malformed", ""},
		{"single quotes", `{'user_id':'u'}`, 400, "malformed", ""},
		{"comment", `{"user_id":"u"/*x*/}`, 400, "malformed", ""},
		{"byte order mark", "\ufeff" + `{"user_id":"u"}`, 400, "malformed", ""},
		{"NaN", `{"user_id":"u","quantity":NaN}`, 400, "malformed", ""},
		{"Infinity", `{"user_id":"u","quantity":Infinity}`, 400, "malformed", ""},
		{"hexadecimal", `{"user_id":"u","quantity":0x10}`, 400, "malformed", ""},
		{"leading zero", `{"user_id":"u","quantity":01}`, 400, "malformed", ""},
		{"plus sign", `{"user_id":"u","quantity":+1}`, 400, "malformed", ""},
		{"raw control character", "{\"user_id\":\"u\x01\"}", 400, "malformed", ""},
		{"raw newline in a string", "{\"user_id\":\"u\n\"}", 400, "malformed", ""},
		{"invalid UTF-8", "{\"user_id\":\"\xff\xfe\"}", 400, "malformed", ""},
		{"overlong UTF-8", "{\"user_id\":\"\xc0\xaf\"}", 400, "malformed", ""},
		{"half a surrogate pair", `{"user_id":"\ud800"}`, 400, "malformed", ""},
		{"bad escape", `{"user_id":"\q"}`, 400, "malformed", ""},
		{"nested too deep", `{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, 400, "malformed", ""},
		{"unknown field behind which the text breaks", `{"foo":1,"user_id":`, 400, "malformed", ""},

		{"no user", `{}`, 422, "invalid", "user_id"},
		{"unknown field", `{"user_id":"u","foo":1}`, 422, "invalid", "foo"},
		{"unknown field of a long name", `{"user_id":"u","x` + strings.Repeat("é", 100) + `":1}`, 422, "invalid", "x" + strings.Repeat("é", 31) + "…"},
		{"other case", `{"User_ID":"u"}`, 422, "invalid", "User_ID"},
		{"user twice", `{"user_id":"u","user_id":"u"}`, 422, "invalid", "user_id"},
		{"user twice by an escape", `{"user_id":"u","user\u005fid":"v"}`, 422, "invalid", "user_id"},
		{"user null", `{"user_id":null}`, 422, "invalid", "user_id"},
		{"user a number", `{"user_id":7}`, 422, "invalid", "user_id"},
		{"user an object", `{"user_id":{"a":[1,"}"]}}`, 422, "invalid", "user_id"},
		{"user empty", `{"user_id":""}`, 422, "invalid", "user_id"},
		{"user too long", `{"user_id":"` + long + `"}`, 422, "invalid", "user_id"},
		{"user with an escaped control character", `{"user_id":"a\u0000b"}`, 422, "invalid", "user_id"},
		{"user with an escaped newline", `{"user_id":"a\nb"}`, 422, "invalid", "user_id"},
		{"user with a right-to-left mark", `{"user_id":"a\u202eb"}`, 422, "invalid", "user_id"},
		{"user with a blank before it", `{"user_id":" u"}`, 422, "invalid", "user_id"},
		{"user with a blank behind it", `{"user_id":"u "}`, 422, "invalid", "user_id"},
		{"user with a variation selector", `{"user_id":"u\ufe0f"}`, 422, "invalid", "user_id"},
		{"user .", `{"user_id":"."}`, 422, "invalid", "user_id"},
		{"user ..", `{"user_id":".."}`, 422, "invalid", "user_id"},
		{"subject with a letter that is blank", `{"user_id":"u","subjects":{"mail":"u\u3164"}}`, 422, "invalid", "subjects.mail"},
		{"subject with a blank behind it", `{"user_id":"u","subjects":{"mail":"u "}}`, 422, "invalid", "subjects.mail"},
		{"user of blanks", `{"user_id":"  "}`, 422, "invalid", "user_id"},
		{"user with DEL", "{\"user_id\":\"a\x7f\"}", 422, "invalid", "user_id"},
		{"quantity null", `{"user_id":"u","quantity":null}`, 422, "invalid", "quantity"},
		{"quantity a string", `{"user_id":"u","quantity":"1"}`, 422, "invalid", "quantity"},
		{"quantity true", `{"user_id":"u","quantity":true}`, 422, "invalid", "quantity"},
		{"quantity zero", `{"user_id":"u","quantity":0}`, 422, "invalid", "quantity"},
		{"quantity minus zero", `{"user_id":"u","quantity":-0}`, 422, "invalid", "quantity"},
		{"quantity negative", `{"user_id":"u","quantity":-1}`, 422, "invalid", "quantity"},
		{"quantity with a fraction", `{"user_id":"u","quantity":1.5}`, 422, "invalid", "quantity"},
		{"quantity with an exponent", `{"user_id":"u","quantity":1e2}`, 422, "invalid", "quantity"},
		{"quantity 1e400", `{"user_id":"u","quantity":1e400}`, 422, "invalid", "quantity"},
		{"quantity above the most", `{"user_id":"u","quantity":1000001}`, 422, "invalid", "quantity"},
		{"quantity beyond 64 bits", `{"user_id":"u","quantity":18446744073709551617}`, 422, "invalid", "quantity"},
		{"quantity of a thousand digits", `{"user_id":"u","quantity":` + strings.Repeat("9", 1000) + `}`, 422, "invalid", "quantity"},

		{"body too large", `{"user_id":"` + strings.Repeat("x", 4096) + `"}`, 413, "too_large", ""},
		{"body too large for its spaces", `{"user_id":"u"}` + strings.Repeat(" ", 4096), 413, "too_large", ""},
	}
}

func TestBadClaims_AreRefusedByNameAndReachNobody(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{})
	for _, c := range badClaims() {
		w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := apitest.RequireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
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
		{"not an array", `{"claims":{}}`, 422, "invalid", "claims"},
		{"null", `{"claims":null}`, 422, "invalid", "claims"},
		{"unknown field", `{"claims":[` + good + `],"x":1}`, 422, "invalid", "x"},
		{"twice", `{"claims":[` + good + `],"claims":[` + good + `]}`, 422, "invalid", "claims"},
		{"1,001 claims", many(1001), 422, "invalid", "claims"},
		{"truncated", `{"claims":[` + good, 400, "malformed", ""},
		{"broken inside a claim", `{"claims":[` + good + `,{"campaign_id":}]}`, 400, "malformed", ""},
		{"no comma", `{"claims":[` + good + good + `]}`, 400, "malformed", ""},
		{"too large", `{"claims":[` + strings.Repeat(" ", claiming.BatchBodyMax) + `]}`, 413, "too_large", ""},
	} {
		w := apitest.Ask(h, "POST", "/v1/claims:batch", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := apitest.RequireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, fake.Sent())
	w := apitest.Ask(h, "POST", "/v1/claims:batch", many(1000))
	require.Equal(t, 200, w.Code)
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
