package wire

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"dibs/models"
)

// SchemaOf is a type's schema in the document.
func SchemaOf[T any](oapi *huma.OpenAPI) *huma.Schema {
	return oapi.Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

// DocumentAnswer adds an answer to an operation.
func DocumentAnswer(op *huma.Operation, status, description, contentType string, schema *huma.Schema) *huma.Response {
	r := &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: {Schema: schema}}}
	op.Responses[status] = r
	return r
}

// DocumentReplay documents that an answer may be a replay.
func DocumentReplay(r *huma.Response, description string) {
	r.Headers = map[string]*huma.Param{replayedHeader: {Schema: &huma.Schema{Type: "string", Enum: []any{"true"}}, Description: description}}
}

// DocumentBody adds a body to an operation.
func DocumentBody(op *huma.Operation, schema *huma.Schema) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{JSONContentType[0]: {Schema: schema}}}
}

// IDParam is the id in the path.
func IDParam() *huma.Param {
	return &huma.Param{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}
}

// KeyParam is the idempotency key.
func KeyParam(description string) *huma.Param {
	schema := &huma.Schema{Type: "string", MinLength: new(1), MaxLength: new(models.IdempotencyKeyLength)}
	return &huma.Param{Name: keyHeader, In: "header", Schema: schema, Description: description}
}
