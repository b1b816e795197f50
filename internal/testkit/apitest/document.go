package apitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

// Document returns the served OpenAPI document, validated, and its router.
func Document(t testing.TB, h http.Handler) (*openapi3.T, routers.Router) {
	t.Helper()
	w := Ask(h, "GET", "/openapi.json", "")
	require.Equal(t, 200, w.Code)
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	require.NoError(t, err)
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return doc, router
}

// Conforms checks a request and its reply against the document.
// A refused request need not conform; its reply must.
func Conforms(router routers.Router, req *http.Request, reqBody []byte, w *httptest.ResponseRecorder) error {
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

// RequireFields compares decoded fields with the schemas of the document.
func RequireFields(t testing.TB, h http.Handler, decoded map[string][]string) {
	t.Helper()
	doc, _ := Document(t, h)
	for name, fields := range decoded {
		schema := doc.Components.Schemas[name]
		require.NotNil(t, schema, "%s in %v", name, slices.Sorted(maps.Keys(doc.Components.Schemas)))
		require.ElementsMatch(t, fields, slices.Collect(maps.Keys(schema.Value.Properties)), name)
	}
}
