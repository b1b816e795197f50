package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"dibs/api/wire"
)

// operation is a handler that huma calls with its input read from path,
// query and body.
type operation[I, O any] = func(ctx context.Context, in *I) (*O, error)

// humaHandlers are huma's handlers, by pattern. huma takes them for its
// mux; the table of routes puts them on the real one.
type humaHandlers map[string]http.HandlerFunc

// HandleFunc keeps a handler by its pattern.
func (c humaHandlers) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	c[pattern] = h
}

// ServeHTTP is not used; huma's adapter asks for it.
func (c humaHandlers) ServeHTTP(http.ResponseWriter, *http.Request) {}

// newHuma makes a huma API without its hooks, which put $schema into
// bodies, and without its documentation page, which loads from a CDN.
// Bodies decode themselves; refusals of huma become ours.
func newHuma(version string, into humaHandlers) huma.API {
	config := huma.DefaultConfig("Dibs", version)
	config.CreateHooks = nil
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		return cmp.Or(schemaNames[name], name)
	})
	config.DocsPath = ""
	config.SchemasPath = ""
	config.OpenAPIPath = ""
	format := huma.Format{Marshal: marshal, Unmarshal: unmarshal}
	// the second is for problem+json
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
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

// strictBody is a body that decodes itself and keeps its refusal for the
// handler.
type strictBody interface{ Decode(body []byte) }

func unmarshal(body []byte, v any) error {
	b, ok := v.(strictBody)
	if !ok {
		return fmt.Errorf("api: %T does not decode itself", v)
	}
	b.Decode(body)
	return nil
}

// ourWords says what huma says of parameters as our own refusals do.
var ourWords = strings.NewReplacer( //nolint:gochecknoglobals // nothing writes to it
	"expected number <= ", "must be at most ", "expected number >= ", "must be at least ", "expected value to be one of ", "must be one of ",
	"expected ", "must be of ", "invalid ", "must be an ",
)

// ourProblem makes a problem of a refusal that huma made: of a parameter,
// or because there is no body.
func ourProblem(_ huma.Context, _ string, v any) (any, error) {
	theirs, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	switch {
	case theirs.Status == http.StatusUnprocessableEntity && len(theirs.Errors) > 0:
		_, name, _ := strings.Cut(theirs.Errors[0].Location, ".")
		return wire.Invalid(name, ourWords.Replace(theirs.Errors[0].Message)), nil
	case theirs.Status == http.StatusBadRequest:
		return wire.Malformed("The body is empty."), nil
	default:
		return wire.Refuse(wire.CodeInternal), nil
	}
}

// viaHuma makes an endpoint of a handler of huma. It reads the body
// itself, by the same rules as that of a claim.
func viaHuma(h http.HandlerFunc, bodyMax int) endpoint {
	return func(w http.ResponseWriter, r *http.Request) int {
		if bodyMax == 0 && r.Method != http.MethodGet {
			if p := wire.NoBody(r); p != nil {
				return p.Write(w)
			}
		}
		if bodyMax > 0 {
			var body bytes.Buffer
			if p := wire.ReadBody(r, &body, bodyMax); p != nil {
				return p.Write(w)
			}
			r = r.WithContext(r.Context())
			r.Body = io.NopCloser(&body)
			r.Header = r.Header.Clone()
			// checked above; huma would check again, by other rules
			r.Header["Content-Type"] = wire.JSONContentType
		}
		// Each operation has a time limit of its own. A client that closed
		// its sending half may be reading still, and net/http would cancel
		// its request as if the client were gone. A deadline is the
		// console's, whose pages wait for no server.
		ctx := context.WithoutCancel(r.Context())
		if deadline, is := r.Context().Deadline(); is {
			limited, cancel := context.WithDeadline(ctx, deadline)
			defer cancel()
			ctx = limited
		}
		r = r.WithContext(ctx)
		sw := &wire.StatusWriter{ResponseWriter: w, Status: http.StatusOK}
		h(sw, r)
		return sw.Status
	}
}
