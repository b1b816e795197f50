package console

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"dibs/api/console/health"
	"dibs/api/wire"
	"dibs/internal/caller"
)

type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader records the status.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write records the body.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// ask sends a request to the API's own routes with from's token. So the
// console refuses what the API refuses. The answer is decoded into out
// unless that is nil.
func (c *Console) ask(from *http.Request, method, path string, body, out any, headers ...string) (http.Header, *wire.ProblemJSON) {
	ctx := from.Context()
	// A hanging server must not delay a page; a change may take its time.
	// A caller with more time than a page sets its own deadline.
	if _, hasDeadline := ctx.Deadline(); method == http.MethodGet && !hasDeadline {
		limited, cancel := context.WithTimeout(ctx, health.Timeout)
		defer cancel()
		ctx = limited
	}
	req := from.Clone(ctx)
	req.Method = method
	req.RequestURI = path
	req.Pattern = ""
	req.Form = nil
	req.PostForm = nil
	req.MultipartForm = nil
	var err error
	req.URL, err = url.ParseRequestURI(path)
	if err != nil {
		return nil, new(wire.Refuse(wire.CodeNotFound).JSON())
	}
	for _, name := range []string{"Content-Type", "Content-Length", "If-Match", "Idempotency-Key"} {
		req.Header.Del(name)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	// the API's request keeps the id of the console's
	req.Header.Set("X-Request-ID", caller.Of(from.Context()).RequestID)
	req.Body = http.NoBody
	req.ContentLength = 0
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, new(wire.Refuse(wire.CodeInternal).JSON())
		}
		req.Header.Set("Content-Type", "application/json")
		req.Body = io.NopCloser(bytes.NewReader(text))
		req.ContentLength = int64(len(text))
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	c.cfg.API.ServeHTTP(a, req)
	if a.status >= 300 {
		var p wire.ProblemJSON
		if !read(a.body.Bytes(), &p) {
			p = wire.Refuse(wire.CodeInternal).JSON()
		}
		return a.header, &p
	}
	if out != nil && !read(a.body.Bytes(), out) {
		return a.header, new(wire.Refuse(wire.CodeInternal).JSON())
	}
	return a.header, nil
}

func (c *Console) answered(from *http.Request, path string, out any) error {
	if _, p := c.ask(from, http.MethodGet, path, nil, out); p != nil {
		return errNotAnswered
	}
	return nil
}

func read(text []byte, into any) bool { return json.Unmarshal(text, into) == nil }

func campaignPath(id string) string { return "/v1/campaigns/" + url.PathEscape(id) }
