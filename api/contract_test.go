package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/models"
)

func TestArrows(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	var ours []string
	for _, path := range pkg.Imports {
		if strings.HasPrefix(path, "dibs/") {
			ours = append(ours, path)
		}
	}
	require.Equal(t, []string{"dibs/lua", "dibs/models"}, ours)
}

// TestCodes_AreThoseOfTheContract: storefronts' programs read these words.
func TestCodes_AreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	contract := map[int]string{
		409: "sold_out user_limit user_day_limit not_started not_released ended paused closed campaign_exists already_redeemed already_released",
		404: "campaign_not_found claim_not_found not_found", 422: "invalid idempotency_mismatch", 400: "malformed", 401: "unauthorized",
		403: "forbidden", 413: "too_large", 429: "rate_limited", 503: "unavailable outcome_unknown", 405: "method_not_allowed", 500: "internal",
	}
	want := map[api.Code]int{}
	for status, codes := range contract {
		for code := range strings.FieldsSeq(codes) {
			want[api.Code(code)] = status
		}
	}
	require.Equal(t, want, api.Codes())
	for _, o := range []models.Outcome{models.OutcomeClaimed, models.OutcomeReplayed} {
		require.Empty(t, api.CodeOf(o))
	}
}

// document is the served OpenAPI document, checked, with a router over it.
func document(t testing.TB, h http.Handler) (*openapi3.T, routers.Router) {
	t.Helper()
	w := ask(h, "GET", "/openapi.json", "")
	require.Equal(t, 200, w.Code)
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	require.NoError(t, err)
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return doc, router
}

// conforms holds a request and its answer to the document. A refused request need not fit, its answer must.
func conforms(router routers.Router, req *http.Request, reqBody []byte, w *httptest.ResponseRecorder) error {
	route, params, err := router.FindRoute(req)
	if err != nil {
		return fmt.Errorf("no route in the document: %w", err)
	}
	options := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
	}
	req.Body = io.NopCloser(bytes.NewReader(reqBody))
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options}
	if w.Code < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return fmt.Errorf("the request was taken but is not in the document: %w", err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: options,
	}
	return openapi3filter.ValidateResponse(context.Background(), out)
}

func TestOpenAPI_AnswersAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	c1 := coupon("c1", 3)
	c1.PerUser, c1.HoldForMs = 2, 60_000
	room := newRoom(c1)
	h := newServer(t, room, api.Config{Tokens: api.Tokens{Admin: "a", Storefront: "s"}})
	_, router := document(t, h)
	seen := map[string]bool{}
	full := `{"id":"x","kind":"coupon","total":5,"name":"n","per_user":1,"per_user_per_day":1,"time_zone":"UTC","starts_at":"2027-01-01T00:00:00Z","ends_at":"2028-01-01T00:00:00Z","low_stock_at":1,"currency":"EUR","sender_id":"s","hold_for":"15m"}`
	for _, q := range []struct{ method, path, body, header string }{
		{"POST", "/v1/campaigns", full, ""}, {"POST", "/v1/campaigns", full, ""},
		{"POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":6}`, ""}, {"POST", "/v1/campaigns", `{"id":"p","kind":"packet"}`, ""},
		{"POST", "/v1/campaigns", `{"id":7}`, ""}, {"POST", "/v1/campaigns", `{`, ""}, {"POST", "/v1/campaigns", strings.Repeat(" ", 2<<20), ""},
		{"POST", "/v1/campaigns", full, "Authorization: Bearer s"}, {"POST", "/v1/campaigns", full, "Authorization: Bearer x"},
		{"GET", "/v1/campaigns", "", ""}, {"GET", "/v1/campaigns?limit=1", "", ""}, {"GET", "/v1/campaigns?limit=x", "", ""},
		{"GET", "/v1/campaigns/x", "", ""}, {"GET", "/v1/campaigns/none", "", ""}, {"GET", "/v1/campaigns/a%20b", "", ""},
		{"PATCH", "/v1/campaigns/x", `{"total":9,"status":"paused"}`, ""}, {"PATCH", "/v1/campaigns/x", `{"total":null}`, ""},
		{"PATCH", "/v1/campaigns/x", `{"starts_at":null,"ends_at":null}`, ""},
		{"PATCH", "/v1/campaigns/none", `{"total":9}`, ""},
		{"GET", "/v1/campaigns/c1/stock", "", ""}, {"GET", "/v1/campaigns/none/stock", "", ""},
		{"POST", "/v1/campaigns/c1/claims", oneClaim, "Idempotency-Key: k"}, {"POST", "/v1/campaigns/c1/claims", oneClaim, "Idempotency-Key: k"},
		{"POST", "/v1/campaigns/c1/claims", `{"user_id":"u1","quantity":9}`, "Idempotency-Key: k"},
		{"POST", "/v1/campaigns/c1/claims", `{"user_id":"u1","quantity":2}`, ""}, {"POST", "/v1/campaigns/c1/claims", `{"user_id":"u2","quantity":2}`, ""},
		{"POST", "/v1/campaigns/c1/claims", oneClaim, ""}, {"POST", "/v1/campaigns/c1/claims", `{}`, ""}, {"POST", "/v1/campaigns/c1/claims", ``, ""},
		{"POST", "/v1/campaigns/c1/claims", strings.Repeat(" ", 9000), ""}, {"POST", "/v1/campaigns/none/claims", oneClaim, ""},
		{"POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"u","idempotency_key":"k"},{"campaign_id":"x","user_id":"u"},{"campaign_id":"none","user_id":"u"}]}`, ""},
		{"POST", "/v1/claims:batch", `{}`, ""},
		{"POST", "/v1/campaigns/x/close", "", ""}, {"PATCH", "/v1/campaigns/x", `{"total":9}`, ""}, {"POST", "/v1/campaigns/x/claims", oneClaim, ""},
		{"POST", "/v1/campaigns/none/close", "", ""},
		{"POST", "/v1/campaigns/x/close", `{"x":1}`, ""}, {"POST", "/v1/campaigns/x/close", `x`, ""}, {"POST", "/v1/campaigns/x/close", strings.Repeat(" ", 9000), ""},
		{"POST", "/v1/campaigns/p/packets", `{"packets":[{"id":"a","amount":5}],"release_at":"2027-01-01T00:00:00Z"}`, ""},
		{"POST", "/v1/campaigns/p/packets", aSplit, "Idempotency-Key: k"}, {"POST", "/v1/campaigns/p/packets", aSplit, "Idempotency-Key: k"},
		{"POST", "/v1/campaigns/p/packets", strings.Replace(aSplit, "10", "11", 1), "Idempotency-Key: k"},
		{"POST", "/v1/campaigns/p/packets", `{"packets":[]}`, ""}, {"POST", "/v1/campaigns/none/packets", aSplit, ""}, {"POST", "/v1/campaigns/x/packets", aSplit, ""},
		{"POST", "/v1/claims/none/redeem", `{"order_id":"o"}`, ""}, {"POST", "/v1/claims/none/redeem", `{}`, ""}, {"POST", "/v1/claims/none/redeem", `{`, ""},
		{"POST", "/v1/claims/none/release", ``, ""}, {"POST", "/v1/claims/none/release", `{"reason":"r"}`, ""}, {"POST", "/v1/claims/a%20b/release", ``, ""},
		{"GET", "/healthz", "", ""}, {"GET", "/readyz", "", ""}, {"GET", "/openapi.json", "", ""}, {"GET", "/metrics", "", ""},
	} {
		req := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
		req.Header.Set("Authorization", "Bearer a")
		if q.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if name, value, ok := strings.Cut(q.header, ": "); ok {
			req.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.NoError(t, conforms(router, req, []byte(q.body), w), "%s %s %s → %d %s", q.method, q.path, q.body, w.Code, w.Body)
		seen[fmt.Sprint(q.method, " ", strings.SplitN(q.path, "?", 2)[0], " ", w.Code)] = true
	}
	for _, must := range []string{
		"POST /v1/campaigns 200", "POST /v1/campaigns 201", "POST /v1/campaigns 400", "POST /v1/campaigns 401", "POST /v1/campaigns 403",
		"POST /v1/campaigns 409", "POST /v1/campaigns 413", "POST /v1/campaigns 422", "POST /v1/campaigns/c1/claims 201",
		"POST /v1/campaigns/c1/claims 409", "POST /v1/campaigns/none/claims 404", "POST /v1/claims:batch 200", "PATCH /v1/campaigns/x 409",
		"POST /v1/campaigns/p/packets 201", "POST /v1/campaigns/p/packets 200", "POST /v1/campaigns/p/packets 422", "POST /v1/campaigns/x/packets 409",
	} {
		require.True(t, seen[must], "%s was not seen: %v", must, slices.Sorted(maps.Keys(seen)))
	}

	room.fail = io.ErrUnexpectedEOF
	room.ready = io.ErrUnexpectedEOF
	for _, path := range []string{"/v1/campaigns", "/v1/campaigns/x", "/v1/campaigns/c1/stock", "/readyz"} {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Header.Set("Authorization", "Bearer a")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.Equal(t, 503, w.Code)
		require.NoError(t, conforms(router, req, nil, w))
	}
}

// TestOpenAPI_TheDocumentIsHeldTo: the check above can fail.
func TestOpenAPI_TheDocumentIsHeldTo(t *testing.T) {
	t.Parallel()
	h := newServer(t, newRoom(coupon("c1", 3)), api.Config{})
	_, router := document(t, h)
	req := httptest.NewRequest(http.MethodPost, "/v1/campaigns/c1/claims", strings.NewReader(oneClaim))
	req.Header.Set("Content-Type", "application/json")
	good := ask(h, "POST", "/v1/campaigns/c1/claims", oneClaim)
	require.NoError(t, conforms(router, req, []byte(oneClaim), good))
	for name, spoil := range map[string]func(w *httptest.ResponseRecorder, body string) string{
		"a field of another type": func(_ *httptest.ResponseRecorder, body string) string {
			return strings.Replace(body, `"seq":1`, `"seq":"1"`, 1)
		},
		"a field missing": func(_ *httptest.ResponseRecorder, body string) string {
			return strings.Replace(body, `"seq":1,`, ``, 1)
		},
		"a field too many": func(_ *httptest.ResponseRecorder, body string) string {
			return strings.Replace(body, `{`, `{"x":1,`, 1)
		},
		"another status": func(w *httptest.ResponseRecorder, body string) string { w.Code = 202; return body },
		"another type of content": func(w *httptest.ResponseRecorder, body string) string {
			w.Header().Set("Content-Type", "text/html")
			return body
		},
	} {
		w := httptest.NewRecorder()
		w.Code = 201
		w.Header().Set("Content-Type", "application/json")
		w.Body.WriteString(spoil(w, good.Body.String()))
		require.Error(t, conforms(router, req, []byte(oneClaim), w), name)
	}
}

func TestOpenAPI_RequestsNameEveryFieldThatIsDecoded(t *testing.T) {
	t.Parallel()
	doc, _ := document(t, newServer(t, newRoom(), api.Config{}))
	for name, fields := range api.RequestFields {
		schema := doc.Components.Schemas[name]
		require.NotNil(t, schema, "%s in %v", name, slices.Sorted(maps.Keys(doc.Components.Schemas)))
		require.ElementsMatch(t, fields, slices.Collect(maps.Keys(schema.Value.Properties)), name)
	}
	require.NotContains(t, doc.Components.Schemas, "ErrorModel")
	require.NotContains(t, doc.Components.Schemas, "ErrorDetail")
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	require.NotContains(t, string(text), "$schema")
}

func TestOpenAPI_ClosedListsAreListed(t *testing.T) {
	t.Parallel()
	doc, _ := document(t, newServer(t, newRoom(), api.Config{}))
	property := func(schema, name string) *openapi3.Schema {
		return doc.Components.Schemas[schema].Value.Properties[name].Value
	}
	var codes []any
	for code := range api.Codes() {
		codes = append(codes, string(code))
	}
	require.ElementsMatch(t, codes, property("ProblemJSON", "code").Enum)
	require.ElementsMatch(t, []any{"open", "paused", "closed"}, property("CampaignView", "status").Enum)
	require.ElementsMatch(t, []any{
		string(models.ClaimClaimed), string(models.ClaimRedeemed), string(models.ClaimReleased), string(models.ClaimExpired),
	}, property("Claim", "status").Enum)
	for _, name := range []string{"id", "kind"} {
		require.Equal(t, &openapi3.Types{"string"}, property("CampaignBody", name).Type, "null is refused")
	}
}
