package route

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/auth"
	"dibs/api/wire"
	"dibs/models"
)

const bearerScheme = "bearer"

// document makes the OpenAPI document of the whole table, and gives huma its
// operations. It also returns the query parameters of the rows, by id.
func document(rows []Row, api huma.API) (queries map[string][]string, text []byte, err error) {
	queries = make(map[string][]string, len(rows))
	oapi := api.OpenAPI()
	describe(oapi)
	registry := oapi.Components.Schemas
	registry.RegisterTypeAlias(reflect.TypeFor[models.Time](), reflect.TypeFor[time.Time]())
	registry.RegisterTypeAlias(reflect.TypeFor[json.RawMessage](), reflect.TypeFor[map[string]any]())
	problem := wire.SchemaOf[wire.ProblemJSON](oapi)
	problem.Extensions = nil
	listCodes(registry.SchemaFromRef(problem.Ref))
	added := make(map[string]*huma.Operation, len(rows)) // by id
	oapi.OnAddOperation = append(oapi.OnAddOperation, func(_ *huma.OpenAPI, op *huma.Operation) { added[op.OperationID] = op })
	for i := range rows {
		rt := &rows[i]
		op := rt.operation(problem)
		if rt.run.register != nil {
			rt.run.register(api, op)
		} else {
			rt.run.document(oapi, &op)
			oapi.AddOperation(&op)
		}
		queries[rt.id] = queryOf(added[rt.id])
	}
	documentCreated(added["create-campaign"], added["add-group"])
	for i := range rows {
		rows[i].annotate(added[rows[i].id])
	}
	for name, schema := range registry.Map() {
		if !slices.Contains(bodies, name) {
			// clients must accept fields that later versions add
			schema.AdditionalProperties = nil
		}
	}
	delete(registry.Map(), "ErrorModel") // huma's own, never sent
	delete(registry.Map(), "ErrorDetail")
	text, err = json.Marshal(oapi)
	if err != nil {
		return nil, nil, fmt.Errorf("route: openapi: %w", err)
	}
	return queries, text, nil
}

func describe(oapi *huma.OpenAPI) {
	oapi.Info.Title = "Dibs"
	oapi.Info.Description = "Hands out a limited number of things, first come, first served: coupons, flash-sale units, red packets. " +
		"Refusals are RFC 9457 problems whose `code` is for programs. Times are RFC 3339 in UTC; amounts are integers in minor units of ISO 4217."
	oapi.Info.Contact = &huma.Contact{Name: "Whoever runs this service"}
	oapi.Info.License = &huma.License{Name: "As the program's", Identifier: "LicenseRef-Dibs"}
	oapi.Servers = []*huma.Server{{URL: "/", Description: "The address that serves this document"}}
	oapi.Components.SecuritySchemes = map[string]*huma.SecurityScheme{bearerScheme: {
		Type: "http", Scheme: "bearer", Description: "A token of a role, or a JWT of the issuer that the service trusts.",
	}}
	for _, tag := range tags {
		oapi.Tags = append(oapi.Tags, &huma.Tag{Name: tag[0], Description: tag[1]})
	}
}

func (rt *Row) annotate(op *huma.Operation) {
	t := texts[rt.id]
	op.Tags = []string{t.tag}
	op.Description = t.description
	for _, p := range op.Parameters {
		if p.Description == "" {
			p.Description = parameterTexts[p.Name]
		}
	}
	if t.body != "" {
		op.RequestBody.Content[wire.JSONContentType[0]].Example = example(t.body)
	}
	if t.answer != "" {
		cmp.Or(op.Responses["201"], op.Responses["200"]).Content[wire.JSONContentType[0]].Example = example(t.answer)
	}
	op.Description = strings.TrimSpace(op.Description + "\n\n" + rolesText(rt.scope))
	if rt.scope == auth.Open {
		op.Security = []map[string][]string{{}} // no token is required
	}
}

func rolesText(scope auth.Scope) string {
	if scope == auth.Open {
		return "Needs no token."
	}
	roles := []string{"`admin`"}
	for _, role := range []struct {
		scope auth.Scope
		name  string
	}{{auth.Viewer, "`viewer`"}, {auth.Storefront, "`storefront`"}, {auth.User, "`user` (for itself alone)"}} {
		if scope&role.scope != 0 {
			roles = append(roles, role.name)
		}
	}
	return "Roles: " + strings.Join(roles, ", ") + "."
}

func listCodes(problem *huma.Schema) {
	code := problem.Properties["code"]
	for _, c := range wire.Codes() {
		code.Enum = append(code.Enum, string(c))
	}
}

// operation is the part of the document that follows from the table.
func (rt *Row) operation(problem *huma.Schema) huma.Operation {
	op := huma.Operation{
		Method: rt.method, Path: rt.path, OperationID: rt.id, Summary: texts[rt.id].summary,
		Responses: map[string]*huma.Response{}, SkipValidateBody: true,
		// one more than viaHuma allows: huma refuses a body of exactly the
		// limit
		MaxBodyBytes: int64(rt.bodyMax) + 1,
	}
	codes := slices.Clone(rt.run.refusals)
	codes = append(codes, wire.CodeInternal)
	if rt.bodyMax > 0 || rt.method != http.MethodGet {
		codes = append(codes, wire.CodeMalformed, wire.CodeTooLarge, wire.CodeInvalid, wire.CodeUnsupportedMediaType)
	}
	codes = append(codes, wire.CodeForbidden) // at least for pages of other sites
	if strings.HasPrefix(rt.path, "/v1/") {
		codes = append(codes, wire.CodeMalformed, wire.CodeInvalid) // because of the query
	}
	if rt.scope != auth.Open {
		codes = append(codes, wire.CodeUnauthorized, wire.CodeRateLimited, wire.CodeUnavailable)
		op.Security = []map[string][]string{{bearerScheme: {}}}
	} else {
		codes = append(codes, wire.CodeUnavailable)
	}
	describeRefusals(op.Responses, codes, problem)
	return op
}

func describeRefusals(responses map[string]*huma.Response, codes []wire.Code, problem *huma.Schema) {
	slices.Sort(codes)
	for _, code := range slices.Compact(codes) {
		p := &wire.Problem{Code: code}
		status := strconv.Itoa(p.GetStatus())
		r := responses[status]
		if r == nil {
			r = &huma.Response{Content: map[string]*huma.MediaType{wire.ProblemContentType[0]: {Schema: problem}}}
			responses[status] = r
		} else {
			r.Description += ", "
		}
		r.Description += string(code)
		if p.RetrySeconds() > 0 {
			r.Headers = map[string]*huma.Param{"Retry-After": {Schema: &huma.Schema{Type: "integer"}, Description: "seconds"}}
		}
		if code == wire.CodeRateLimited {
			text := &huma.Schema{Type: "string"}
			r.Headers["RateLimit-Policy"] = &huma.Param{Schema: text, Description: `requests (q) in seconds (w), by "user" or "address"`}
			r.Headers["RateLimit"] = &huma.Param{Schema: text, Description: "requests left (r), and seconds until there is one (t)"}
		}
	}
}

// Documented is an endpoint that answers with a text of another format.
func Documented(description, contentType string, schema huma.Schema) Document {
	return func(_ *huma.OpenAPI, op *huma.Operation) {
		wire.DocumentAnswer(op, "200", description, contentType, &schema)
	}
}

// Schemas of texts that are defined elsewhere.
var (
	AnyObject = huma.Schema{Type: "object", AdditionalProperties: true} //nolint:gochecknoglobals // a constant
	AnyText   = huma.Schema{Type: "string"}                             //nolint:gochecknoglobals // a constant
)

// documentCreated adds 201 to operations that answer 200 or 201. huma can't
// see that in a handler.
func documentCreated(ops ...*huma.Operation) {
	for _, op := range ops {
		made := *op.Responses["200"]
		made.Description = "Created"
		op.Responses["201"] = &made
		op.Responses["200"].Description = "It was there already, with the same content"
	}
}

// JSON answers with what text is by then.
func JSON(text *[]byte) Endpoint {
	return func(w http.ResponseWriter, _ *http.Request) int {
		w.Header()["Content-Type"] = wire.JSONContentType
		_, _ = w.Write(*text) // a disconnected client needs no answer
		return http.StatusOK
	}
}
