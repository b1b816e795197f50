package api

import (
	"slices"

	"dibs/models"
)

// claimCodes are the refusals that a claim may get, besides those of its token.
var claimCodes = []Code{
	CodeSoldOut, CodeUserLimit, CodeUserDayLimit, CodeNotStarted, CodeNotReleased, CodeEnded, CodePaused, CodeClosed,
	CodeCampaignNotFound, CodeInvalid, CodeIdempotencyMismatch, CodeMalformed, CodeTooLarge, CodeRateLimited, CodeUnavailable,
	CodeOutcomeUnknown, CodeInternal,
}

// codeOf maps what became of a claim to its refusal; "" when the user holds a claim.
func codeOf(o models.Outcome) Code {
	switch o {
	case models.OutcomeClaimed, models.OutcomeReplayed:
		return ""
	case models.OutcomeAbsent, models.OutcomeDamaged, models.OutcomeRolledBack:
		return CodeUnavailable
	default:
		if !slices.Contains(claimCodes, Code(o)) {
			return CodeInternal
		}
		return Code(o)
	}
}
