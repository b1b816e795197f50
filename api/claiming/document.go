package claiming

import (
	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

func DocumentClaim(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		{Name: "Idempotency-Key", In: "header",
			Schema:      &huma.Schema{Type: "string", MinLength: new(1), MaxLength: new(models.IdempotencyKeyLength)},
			Description: "printable characters; the same key with the same body gets the first answer again"},
	}
	wire.Takes(op, wire.SchemaOf[claimBody](oapi, "ClaimRequest"))
	r := wire.Answers(op, "201", "The user holds the claim", wire.JSONContentType[0], wire.SchemaOf[models.Claim](oapi, "Claim"))
	r.Headers = map[string]*huma.Param{wire.ReplayedHeader: {
		Schema:      &huma.Schema{Type: "string", Enum: []any{"true"}},
		Description: "this is the first answer of the key, given again",
	}}
}

func DocumentBatch(oapi *huma.OpenAPI, op *huma.Operation) {
	wire.Takes(op, wire.SchemaOf[batchBody](oapi, "BatchRequest"))
	wire.Answers(op, "200", "A result for each claim, in order", wire.JSONContentType[0], wire.SchemaOf[batchResults](oapi, "BatchResults"))
}
