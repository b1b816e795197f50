package form

import (
	"errors"
	"slices"

	"dibs/api/coalesce"
	"dibs/api/wire"
	"dibs/lua"
	"dibs/models"
)

// codeOf is the refusal for an outcome; "" if the user holds a claim.
func codeOf(o models.Outcome) wire.Code {
	switch o {
	case models.OutcomeClaimed, models.OutcomeReplayed:
		return ""
	case models.OutcomeAbsent, models.OutcomeDamaged, models.OutcomeRolledBack, models.OutcomeDry:
		return wire.CodeUnavailable
	default:
		if !slices.Contains(wire.ClaimCodes, wire.Code(o)) {
			return wire.CodeInternal
		}
		return wire.Code(o)
	}
}

// codeOfError is the refusal for an error of claiming.Claimer. Only
// lua.ErrUnavailable, and that the campaign doesn't exist, prove that no
// claim was made.
func codeOfError(err error) wire.Code {
	if errors.Is(err, models.ErrNotFound) {
		return wire.CodeCampaignNotFound
	}
	if errors.Is(err, lua.ErrUnavailable) && !errors.Is(err, lua.ErrOutcomeUnknown) {
		return wire.CodeUnavailable
	}
	return wire.CodeOutcomeUnknown
}

// Refusal is the refusal of a sent claim; nil if the user holds it. If the
// outcome is unknown and the claim had no key, it names the claim to check.
func Refusal(t *coalesce.Ticket) *wire.Problem {
	code := codeOf(t.Reply.Outcome)
	if t.Err != nil {
		code = codeOfError(t.Err)
	}
	switch {
	case code == "":
		return nil
	case code == wire.CodeOutcomeUnknown && t.Request.Key == "":
		return &wire.Problem{
			Code: code, ClaimID: t.Request.ID.String(),
			Detail: "The claim may have been made. Look up claim_id to find out, and send an Idempotency-Key with the next claim.",
		}
	case code == wire.CodeSoldOut:
		return SoldOut(t.Reply.Left)
	case t.Err == nil && t.Reply.Limit != nil:
		return limitRefusal(code, t.Reply.Limit)
	default:
		return wire.Refuse(code)
	}
}

// SoldOut refuses a claim for more units than are left.
func SoldOut(left int64) *wire.Problem {
	if left == 0 {
		return wire.Refuse(wire.CodeSoldOut)
	}
	return &wire.Problem{
		Code: wire.CodeSoldOut, Remaining: left,
		Detail: "The campaign has fewer units left than the claim asks for: remaining says how many. A claim for no more may be taken.",
	}
}

// limitRefusal names the limit that refuses, or the subject that the
// claim lacks for it.
func limitRefusal(code wire.Code, limit *lua.LimitHit) *wire.Problem {
	if code == wire.CodeInvalid {
		return Lacks(limit.By)
	}
	p := &wire.Problem{Code: code, Limit: wire.Limit{By: limit.By, Per: limit.Per, Max: limit.Max}}
	if !limit.ResetsAt.IsZero() {
		p.Limit.ResetsAt = models.NewTime(limit.ResetsAt)
	}
	return p
}

// Lacks refuses a claim without a subject that the campaign limits.
func Lacks(subject string) *wire.Problem {
	return wire.Invalid("subjects."+subject, "is required: the campaign limits it")
}
