package wire

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

func SchemaOf[T any](oapi *huma.OpenAPI, name string) *huma.Schema {
	return oapi.Components.Schemas.Schema(reflect.TypeFor[T](), true, name)
}

func Answers(op *huma.Operation, status, description, contentType string, schema *huma.Schema) *huma.Response {
	r := &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: {Schema: schema}}}
	op.Responses[status] = r
	return r
}

func Takes(op *huma.Operation, schema *huma.Schema) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{JSONContentType[0]: {Schema: schema}}}
}
