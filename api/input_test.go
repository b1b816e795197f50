package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
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
	room := newRoom(coupon("c1", 10))
	h := newServer(t, room, api.Config{})
	for _, c := range badClaims() {
		w := ask(h, "POST", "/v1/campaigns/c1/claims", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := requireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, room.sent())
	require.Zero(t, room.states, "not even the campaign was looked up")
	require.Equal(t, 201, ask(h, "POST", "/v1/campaigns/c1/claims", oneClaim).Code, "control: a good one gets through")
}

func TestBadClaims_InABatchAreRefusedOnTheirOwn(t *testing.T) {
	t.Parallel()
	room := newRoom(coupon("c1", 10))
	h := newServer(t, room, api.Config{})
	for _, c := range badClaims() {
		if c.code != "invalid" {
			continue
		}
		claim := `{"campaign_id":"c1"` + strings.Replace(c.body[1:], `"`, `,"`, 1)
		if c.body == `{}` {
			claim = `{"campaign_id":"c1"}`
		}
		w := ask(h, "POST", "/v1/claims:batch", `{"claims":[`+claim+`]}`)
		require.Equal(t, 200, w.Code, "%s: %s", c.name, w.Body)
		require.Contains(t, w.Body.String(), `{"results":[{"status":422,"problem":{`, c.name)
		require.Contains(t, w.Body.String(), `"field":"`+c.field+`"`, c.name)
	}
	require.Zero(t, room.sent())
}

func TestBadBatches(t *testing.T) {
	t.Parallel()
	room := newRoom(coupon("c1", 10_000))
	h := newServer(t, room, api.Config{})
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
		{"too large", `{"claims":[` + strings.Repeat(" ", api.BatchBodyMax) + `]}`, 413, "too_large", ""},
	} {
		w := ask(h, "POST", "/v1/claims:batch", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := requireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, room.sent())
	w := ask(h, "POST", "/v1/claims:batch", many(1000))
	require.Equal(t, 200, w.Code)
	require.Equal(t, 1000, strings.Count(w.Body.String(), `"status":201`), "control: 1,000 are fine")
	for _, call := range room.calls {
		require.LessOrEqual(t, len(call), 128)
	}
}

func TestBadHeadersAndPaths(t *testing.T) {
	t.Parallel()
	room := newRoom(coupon("c1", 10))
	h := newServer(t, room, api.Config{})
	for _, c := range []struct {
		name, path  string
		headers     []string
		status      int
		code, field string
	}{
		{"campaign with a control character", "/v1/campaigns/c%01/claims", nil, 422, "invalid", "campaign_id"},
		{"campaign with a slash", "/v1/campaigns/c%2f1/claims", nil, 422, "invalid", "campaign_id"},
		{"campaign too long", "/v1/campaigns/" + strings.Repeat("c", 65) + "/claims", nil, 422, "invalid", "campaign_id"},
		{"key empty", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: "}, 422, "invalid", "Idempotency-Key"},
		{"key too long", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 422, "invalid", "Idempotency-Key"},
		{"key with a tab", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a\tb"}, 422, "invalid", "Idempotency-Key"},
		{"key not UTF-8", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a\xff"}, 422, "invalid", "Idempotency-Key"},
		{"two keys", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a", "Idempotency-Key: a"}, 422, "invalid", "Idempotency-Key"},
		{"a form", "/v1/campaigns/c1/claims", []string{"Content-Type: application/x-www-form-urlencoded"}, 400, "malformed", ""},
		{"text", "/v1/campaigns/c1/claims", []string{"Content-Type: text/plain"}, 400, "malformed", ""},
		{"nonsense type", "/v1/campaigns/c1/claims", []string{"Content-Type: ;;;"}, 400, "malformed", ""},
		{"no such path", "/v1/campaigns/c1/claim", nil, 404, "not_found", ""},
		{"a slash too many", "/v1//campaigns/c1/claims", nil, 404, "not_found", ""},
		{"a slash at the end", "/v1/campaigns/c1/claims/", nil, 404, "not_found", ""},
		{"no campaign", "/v1/campaigns//claims", nil, 404, "not_found", ""},
		{"dots", "/v1/campaigns/./c1/claims", nil, 404, "not_found", ""},
		{"two dots", "/v1/campaigns/c2/../c1/claims", nil, 404, "not_found", ""},
		{"only dots", "/..", nil, 404, "not_found", ""},
	} {
		w := ask(h, "POST", c.path, oneClaim, c.headers...)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := requireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, room.sent())
	w := ask(h, "PUT", "/v1/campaigns/c1/claims", oneClaim)
	requireProblem(t, 405, w.Header(), w.Body.Bytes(), "method_not_allowed")
	require.Equal(t, "POST", w.Header().Get("Allow"))
	for i, header := range []string{"Content-Type: application/json; charset=utf-8", "Content-Type: APPLICATION/JSON", "Idempotency-Key: " + strings.Repeat("é", 255)} {
		w = ask(h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i), header)
		require.Equal(t, 201, w.Code, "control: %s", header)
	}
}

func TestBadCampaigns_AreRefusedByName(t *testing.T) {
	t.Parallel()
	room := newRoom(coupon("c1", 10))
	h := newServer(t, room, api.Config{})
	with := func(more string) string { return `{"id":"n","kind":"coupon","total":1` + more + `}` }
	for _, c := range []badBody{
		{"empty", ``, 400, "malformed", ""},
		{"truncated", `{"id":"n"`, 400, "malformed", ""},
		{"too large", with(strings.Repeat(" ", 1<<20)), 413, "too_large", ""},
		{"no id", `{"kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"id ..", `{"id":"..","kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"id with a slash", `{"id":"a/b","kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"id with a control character", `{"id":"a\u0001","kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"no kind", `{"id":"n","total":1}`, 422, "invalid", "kind"},
		{"other kind", `{"id":"n","kind":"lottery","total":1}`, 422, "invalid", "kind"},
		{"no total", `{"id":"n","kind":"coupon"}`, 422, "invalid", "total"},
		{"total of packets", `{"id":"n","kind":"packet","total":1}`, 422, "invalid", "total"},
		{"total negative", `{"id":"n","kind":"coupon","total":-1}`, 422, "invalid", "total"},
		{"total huge", `{"id":"n","kind":"coupon","total":1e30}`, 422, "invalid", "total"},
		{"total beyond", `{"id":"n","kind":"coupon","total":1000000000001}`, 422, "invalid", "total"},
		{"total null", `{"id":"n","kind":"coupon","total":null}`, 422, "invalid", "total"},
		{"status", with(`,"status":"open"`), 422, "invalid", "status"},
		{"unknown field", with(`,"totl":1`), 422, "invalid", "totl"},
		{"id twice", with(`,"id":"m"`), 422, "invalid", "id"},
		{"per_user a string", with(`,"per_user":"1"`), 422, "invalid", "per_user"},
		{"zone", with(`,"time_zone":"Mars/Base"`), 422, "invalid", "time_zone"},
		{"zone local", with(`,"time_zone":"Local"`), 422, "invalid", "time_zone"},
		{"zone empty", with(`,"time_zone":""`), 422, "invalid", "time_zone"},
		{"starts_at", with(`,"starts_at":"tomorrow"`), 422, "invalid", "starts_at"},
		{"ends_at before 1970", with(`,"ends_at":"1969-01-01T00:00:00Z"`), 422, "invalid", "ends_at"},
		{"window turned round", with(`,"starts_at":"2027-01-02T00:00:00Z","ends_at":"2027-01-01T00:00:00Z"`), 422, "invalid", "ends_at"},
		{"hold_for a number", with(`,"hold_for":15`), 422, "invalid", "hold_for"},
		{"hold_for nonsense", with(`,"hold_for":"soon"`), 422, "invalid", "hold_for"},
		{"hold_for negative", with(`,"hold_for":"-1m"`), 422, "invalid", "hold_for"},
		{"hold_for a nanosecond", with(`,"hold_for":"1ns"`), 422, "invalid", "hold_for"},
		{"hold_for two years", with(`,"hold_for":"17520h"`), 422, "invalid", "hold_for"},
		{"currency", with(`,"currency":"eur"`), 422, "invalid", "currency"},
		{"sender", with(`,"sender_id":""`), 422, "invalid", "sender_id"},
		{"name with a bell", with(`,"name":"a\u0007"`), 422, "invalid", "name"},
		{"name too long", with(`,"name":"` + strings.Repeat("n", 201) + `"`), 422, "invalid", "name"},
	} {
		w := ask(h, "POST", "/v1/campaigns", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := requireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	for _, c := range []badBody{
		{"id", `{"id":"x"}`, 422, "invalid", "id"},
		{"kind", `{"kind":"packet"}`, 422, "invalid", "kind"},
		{"null", `{"low_stock_at":null}`, 422, "invalid", "low_stock_at"}, {"null", `{"status":null}`, 422, "invalid", "status"},
		{"null and more", `{"ends_at":nullx}`, 400, "malformed", ""}, {"null in part", `{"ends_at":nul}`, 400, "malformed", ""},
		{"no time", `{"ends_at":""}`, 422, "invalid", "ends_at"}, {"null twice", `{"ends_at":null,"ends_at":null}`, 422, "invalid", "ends_at"},
		{"type", `{"total":"7"}`, 422, "invalid", "total"},
		{"closed", `{"status":"closed"}`, 422, "invalid", "status"},
		{"time", `{"starts_at":"2027-13-01T00:00:00Z"}`, 422, "invalid", "starts_at"},
		{"broken", `{"total":7`, 400, "malformed", ""},
	} {
		w := ask(h, "PATCH", "/v1/campaigns/c1", c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := requireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Len(t, room.campaigns, 1)
	require.EqualValues(t, 0, room.campaigns["c1"].Version, "nothing was changed")
}
