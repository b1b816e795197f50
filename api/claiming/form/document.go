package form

import (
	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
)

// ReplayedClaims is a header that marks a batch's replayed claims if only
// some are replays.
const ReplayedClaims = "Idempotent-Replayed-Claims"

// DocumentClaim describes the route of a claim.
func DocumentClaim(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		wire.IDParam(),
		wire.KeyParam("characters that can be seen, as in user_id; scoped by campaign and user; " +
			"the same key with the same body gets the first answer"),
	}
	wire.DocumentBody(op, wire.SchemaOf[ClaimBody](oapi))
	r := wire.DocumentAnswer(op, "201", "The user holds the claim", wire.JSONContentType[0], wire.SchemaOf[models.Claim](oapi))
	wire.DocumentReplay(r, "this is the first answer of the key, given again")
}

// DocumentBatch describes the route of a batch.
func DocumentBatch(oapi *huma.OpenAPI, op *huma.Operation) {
	wire.DocumentBody(op, wire.SchemaOf[BatchBody](oapi))
	r := wire.DocumentAnswer(op, "200", "A result for each claim, in order", wire.JSONContentType[0], wire.SchemaOf[batchResults](oapi))
	wire.DocumentReplay(r, "each claim is the first answer of its key, given again")
	r.Headers[ReplayedClaims] = &huma.Param{
		Schema:      &huma.Schema{Type: "string", Pattern: "^[01]+$", MaxLength: new(batchMax)},
		Description: "when some claims are such answers and some are not: a 1 for each that is, a 0 for each other, in order",
	}
}

type batchResults struct {
	Results []batchResult `json:"results" nullable:"false"`
}

type batchResult struct {
	Status  int               `json:"status" doc:"the HTTP status that the claim route gives"`
	Claim   *models.Claim     `json:"claim,omitempty"`
	Problem *wire.ProblemJSON `json:"problem,omitempty"`
}
