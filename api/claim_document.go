package api

import (
	"github.com/danielgtaylor/huma/v2"

	"dibs/models"
)

func documentClaim(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		{Name: "Idempotency-Key", In: "header",
			Schema:      &huma.Schema{Type: "string", MinLength: new(1), MaxLength: new(models.IdempotencyKeyLength)},
			Description: "printable characters; the same key with the same body gets the first answer again"},
	}
	takes(op, schemaOf[claimBody](oapi, "ClaimRequest"))
	r := answers(op, "201", "The user holds the claim", jsonContentType[0], schemaOf[models.Claim](oapi, "Claim"))
	r.Headers = map[string]*huma.Param{replayedHeader: {
		Schema:      &huma.Schema{Type: "string", Enum: []any{"true"}},
		Description: "this is the first answer of the key, given again",
	}}
}

func documentBatch(oapi *huma.OpenAPI, op *huma.Operation) {
	takes(op, schemaOf[batchBody](oapi, "BatchRequest"))
	answers(op, "200", "A result for each claim, in order", jsonContentType[0], schemaOf[batchResults](oapi, "BatchResults"))
}
