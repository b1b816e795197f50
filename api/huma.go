package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"dibs/api/wire"
)

// operation is a handler that huma calls with its input read from path, query and body.
type operation[I, O any] = func(ctx context.Context, in *I) (*O, error)

// captured takes the place of a mux: huma's handlers are put on the real one by the table of routes.
type captured map[string]http.HandlerFunc

// HandleFunc keeps a handler by its pattern.
func (c captured) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	c[pattern] = h
}

// ServeHTTP is not used; huma's adapter asks for it.
func (c captured) ServeHTTP(http.ResponseWriter, *http.Request) {}

// newHuma makes a huma API without pages of its own: its hooks would put $schema into bodies, its documentation page loads
// from elsewhere. Bodies are decoded by themselves, strictly; refusals of huma become ours.
func newHuma(version string, into captured) huma.API {
	config := huma.DefaultConfig("Dibs", version)
	config.CreateHooks = nil
	config.DocsPath, config.SchemasPath, config.OpenAPIPath = "", "", ""
	format := huma.Format{Marshal: marshal, Unmarshal: unmarshal}
	config.Formats = map[string]huma.Format{"application/json": format, "json": format} // the second is for problem+json
	config.Transformers = []huma.Transformer{ourProblem}
	return humago.New(into, config)
}

func marshal(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// strictBody is a body that decodes itself. A refusal stays inside until the handler asks for it.
type strictBody interface{ Decode(body []byte) }

func unmarshal(body []byte, v any) error {
	b, ok := v.(strictBody)
	if !ok {
		return fmt.Errorf("api: %T does not decode itself", v)
	}
	b.Decode(body)
	return nil
}

// ourProblem turns a refusal that huma made itself, of a parameter or for want of a body, into ours.
func ourProblem(_ huma.Context, _ string, v any) (any, error) {
	theirs, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	switch {
	case theirs.Status == http.StatusUnprocessableEntity && len(theirs.Errors) > 0:
		_, name, _ := strings.Cut(theirs.Errors[0].Location, ".")
		return wire.Invalid(name, theirs.Errors[0].Message), nil
	case theirs.Status == http.StatusBadRequest:
		return wire.Malformed("The body is empty."), nil
	default:
		return &wire.Problem{Code: wire.CodeInternal}, nil
	}
}

// viaHuma runs a handler of huma as an endpoint. The body is read here, by the same rules as that of a claim.
func viaHuma(h http.HandlerFunc, bodyMax int) endpoint {
	return func(w http.ResponseWriter, r *http.Request) int {
		if bodyMax == 0 && r.Method != http.MethodGet {
			if p := wire.NoBody(r); p != nil {
				return p.Write(w)
			}
		}
		if bodyMax > 0 {
			body, p := wire.ReadJSON(r, nil, bodyMax)
			if p != nil {
				return p.Write(w)
			}
			r = r.WithContext(r.Context())
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.Header = r.Header.Clone()
			r.Header["Content-Type"] = wire.JSONContentType // judged above; huma would judge again, and otherwise
		}
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h(sw, r)
		return sw.status
	}
}

// statusWriter remembers the status for metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
