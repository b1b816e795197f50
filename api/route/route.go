// Package route makes what follows from the rows of the table of routes:
// the handlers, with the check of their queries, and the OpenAPI document.
package route

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/auth"
	"dibs/api/wire"
)

// Row is a row of the table of routes. Its texts for the document are in
// texts.
type Row struct {
	method, path string
	scope        auth.Scope // any of these or admin is allowed; zero: everyone
	bodyMax      int        // bytes; 0: no body
	id           string
	run          Handler
}

// On is the row of a method and a path.
func On(method, path string, scope auth.Scope, bodyMax int, id string, run Handler) Row {
	return Row{method: method, path: path, scope: scope, bodyMax: bodyMax, id: id, run: run}
}

// Handler is either a plain endpoint with its document, or an operation
// that huma runs and documents.
type Handler struct {
	plain    Endpoint
	document Document
	register func(api huma.API, op huma.Operation)
	refusals []wire.Code // beyond those of every route of its kind
}

// Endpoint answers a request and returns the status.
type Endpoint func(w http.ResponseWriter, r *http.Request) int

// Document describes an endpoint.
type Document func(oapi *huma.OpenAPI, op *huma.Operation)

// Plain is an endpoint, which may be refused with these codes, too.
func Plain(run Endpoint, document Document, refusals ...wire.Code) Handler {
	return Handler{plain: run, document: document, refusals: refusals}
}

// Huma is an operation, whose input huma reads from path, query and body.
func Huma[I, O any](run operation[I, O], refusals ...wire.Code) Handler {
	return Handler{register: func(api huma.API, op huma.Operation) { huma.Register(api, op, run) }, refusals: refusals}
}

// Served is a row with what serves it.
type Served struct {
	Pattern, Path string
	Scope         auth.Scope
	Run           Endpoint
}

// Serve returns what serves the rows, and their OpenAPI document.
func Serve(rows []Row, version string) ([]Served, []byte, error) {
	handlers := humaHandlers{}
	queries, text, err := document(rows, newHuma(version, handlers))
	if err != nil {
		return nil, nil, err
	}
	served := make([]Served, len(rows))
	for i := range rows {
		rt := &rows[i]
		pattern := rt.method + " " + rt.path
		run := rt.run.plain
		if run == nil {
			run = viaHuma(handlers[pattern], rt.bodyMax)
		}
		if strings.HasPrefix(rt.path, "/v1/") {
			run = withQuery(queries[rt.id], run)
		}
		served[i] = Served{Pattern: pattern, Path: rt.path, Scope: rt.scope, Run: run}
	}
	return served, text, nil
}
