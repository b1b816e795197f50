package api_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/wire"
	"dibs/internal/testkit/apitest"
)

// The check above must be able to fail.
func TestOpenAPI_TheDocumentIsHeldTo(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 3)), api.Config{})
	_, router := apitest.Document(t, h)
	req := httptest.NewRequest(http.MethodPost, "/v1/campaigns/c1/claims", strings.NewReader(apitest.OneClaim))
	req.Header.Set("Content-Type", "application/json")
	good := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	require.NoError(t, apitest.Conforms(router, req, []byte(apitest.OneClaim), good))
	for name, spoil := range map[string]func(w *httptest.ResponseRecorder, body string) string{
		"a field of another type": func(_ *httptest.ResponseRecorder, body string) string {
			return strings.Replace(body, `"seq":1`, `"seq":"1"`, 1)
		},
		"a field missing": func(_ *httptest.ResponseRecorder, body string) string {
			return strings.Replace(body, `"seq":1,`, ``, 1)
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
		require.Error(t, apitest.Conforms(router, req, []byte(apitest.OneClaim), w), name)
	}
}

func TestOpenAPI_ClosedListsAreListed(t *testing.T) {
	t.Parallel()
	doc, _ := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	property := func(schema, name string) *openapi3.Schema {
		return doc.Components.Schemas[schema].Value.Properties[name].Value
	}
	var codes []any
	for _, code := range wire.Codes() {
		codes = append(codes, string(code))
	}
	require.ElementsMatch(t, codes, property("Problem", "code").Enum)
	require.ElementsMatch(t, []any{"open", "paused", "closed"}, property("Campaign", "status").Enum)
	require.ElementsMatch(t, []any{"claimed", "redeemed", "released", "expired", "parked"}, property("Claim", "status").Enum)
}

// Answers may get new fields: clients must ignore unknown ones.
func TestOpenAPI_AnswersMayGrowAndRequestsMayNot(t *testing.T) {
	t.Parallel()
	doc, _ := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	var closed []string
	for name, schema := range doc.Components.Schemas {
		if more := schema.Value.AdditionalProperties.Has; more != nil && !*more {
			closed = append(closed, name)
		}
	}
	sent := make(map[string]bool) // schemas of request bodies
	var add func(schema *openapi3.SchemaRef)
	add = func(schema *openapi3.SchemaRef) {
		if schema.Ref != "" {
			sent[path.Base(schema.Ref)] = true
		}
		for _, property := range schema.Value.Properties {
			add(property)
		}
		if schema.Value.Items != nil {
			add(schema.Value.Items)
		}
	}
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody != nil {
				add(op.RequestBody.Value.Content["application/json"].Schema)
			}
		}
	}
	require.Len(t, sent, 13)
	require.ElementsMatch(t, slices.Collect(maps.Keys(sent)), closed)
}

func TestOpenAPI_NamesEveryRouteThatTakesAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	doc, _ := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	for _, route := range []string{"/v1/campaigns/{id}/claims", "/v1/campaigns/{id}/packets", "/v1/claims/{id}/extend"} {
		require.NotNil(t, doc.Paths.Value(route).Post.Parameters.GetByInAndName("header", "Idempotency-Key"), route)
	}
}
