package route

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

// operation is a handler whose input huma reads from path, query and body.
type operation[I, O any] = func(ctx context.Context, in *I) (*O, error)

// humaHandlers collects huma's handlers by pattern, instead of a mux. The
// table of routes then registers them.
type humaHandlers map[string]http.HandlerFunc

// HandleFunc stores a handler.
func (c humaHandlers) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	c[pattern] = h
}

// ServeHTTP is unused, but huma's adapter requires it.
func (c humaHandlers) ServeHTTP(http.ResponseWriter, *http.Request) {}

// newHuma makes a huma API. It lacks huma's hooks, which add $schema to
// bodies, and the documentation page, which loads from a CDN. Bodies decode
// themselves. huma's refusals become ours.
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

type strictBody interface{ Decode(body []byte) }

func unmarshal(body []byte, v any) error {
	b, ok := v.(strictBody)
	if !ok {
		return fmt.Errorf("api: %T does not decode itself", v)
	}
	b.Decode(body)
	return nil
}

// ourWords rewrites huma's refusals of parameters in the words of ours.
var ourWords = strings.NewReplacer( //nolint:gochecknoglobals // nothing writes to it
	"expected number <= ", "must be at most ", "expected number >= ", "must be at least ", "expected value to be one of ", "must be one of ",
	"expected ", "must be of ", "invalid ", "must be an ",
)

// ourProblem converts a refusal by huma, of a parameter or an empty body,
// to a problem.
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

// viaHuma makes an endpoint of a huma handler. It reads the body by the
// same rules as a claim's.
func viaHuma(h http.HandlerFunc, bodyMax int) Endpoint {
	return func(w http.ResponseWriter, r *http.Request) int {
		if bodyMax == 0 && r.Method != http.MethodGet {
			if p := wire.NoBody(r); p != nil {
				return p.Write(w)
			}
		}
		r = withOneIfMatch(r)
		if bodyMax > 0 {
			var body bytes.Buffer
			if p := wire.ReadBody(r, &body, bodyMax); p != nil {
				return p.Write(w)
			}
			r = r.WithContext(r.Context())
			r.Body = io.NopCloser(&body)
			// checked above; huma's own check has other rules
			r.Header = r.Header.Clone()
			r.Header["Content-Type"] = wire.JSONContentType
		}
		// Each operation has its own timeout. net/http cancels the request of
		// a client that closed only its sending half, though it may still
		// read. So the cancellation is dropped, and a deadline is kept. Only
		// the console sets one, so that its pages don't wait for a server.
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

// withOneIfMatch returns the request with all lines of If-Match in one, as huma
// reads only the first. One without a tag names none of a campaign's: huma would
// take it for no header, and the change for one without a condition.
func withOneIfMatch(r *http.Request) *http.Request {
	const name = "If-Match"
	lines := r.Header[name]
	if len(lines) == 0 {
		return r
	}
	list := strings.Trim(strings.Join(lines, ", "), ", \t")
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header[name] = []string{cmp.Or(list, `""`)}
	return r
}
