package route

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
)

// withQuery applies checkQuery to a route. Routes for other tools, such as
// probes, don't use it.
func withQuery(known []string, run Endpoint) Endpoint {
	return func(w http.ResponseWriter, r *http.Request) int {
		if p := checkQuery(r, known); p != nil {
			return p.Write(w)
		}
		return run(w, r)
	}
}

// checkQuery refuses unknown query parameters. If a misspelt one were
// ignored, the answer would be to another question.
func checkQuery(r *http.Request, known []string) *wire.Problem {
	if r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return wire.Malformed("The query of the URL can't be read.")
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return wire.Invalid(wire.Shorten(name), "is not a known query parameter")
		}
		if len(query[name]) > 1 {
			return wire.Invalid(name, "is there twice")
		}
	}
	return nil
}

func queryOf(op *huma.Operation) []string {
	names := []string{}
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}
