package claiming

import (
	"slices"

	"dibs/api/wire"
	"dibs/models"
)

// claimCodes are the refusals that a claim may get, besides those of its token.
var Codes = []wire.Code{
	wire.CodeSoldOut, wire.CodeUserLimit, wire.CodeUserDayLimit, wire.CodeNotStarted, wire.CodeNotReleased, wire.CodeEnded, wire.CodePaused, wire.CodeClosed,
	wire.CodeCampaignNotFound, wire.CodeInvalid, wire.CodeIdempotencyMismatch, wire.CodeMalformed, wire.CodeTooLarge, wire.CodeRateLimited, wire.CodeUnavailable,
	wire.CodeOutcomeUnknown, wire.CodeInternal,
}

// codeOf maps what became of a claim to its refusal; "" when the user holds a claim.
func codeOf(o models.Outcome) wire.Code {
	switch o {
	case models.OutcomeClaimed, models.OutcomeReplayed:
		return ""
	case models.OutcomeAbsent, models.OutcomeDamaged, models.OutcomeRolledBack:
		return wire.CodeUnavailable
	default:
		if !slices.Contains(Codes, wire.Code(o)) {
			return wire.CodeInternal
		}
		return wire.Code(o)
	}
}
