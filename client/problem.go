package client

import (
	"fmt"
	"time"
)

// Code is why the service refused. It is an error, for errors.Is(err,
// client.ErrSoldOut). Test for a code that this package lacks with
// client.Code("the_code").
type Code string //nolint:errname // RFC 9457 and the service call it so

// The codes of the service.
const (
	ErrSoldOut             Code = "sold_out"
	ErrUserLimit           Code = "user_limit"
	ErrUserDayLimit        Code = "user_day_limit"
	ErrLimit               Code = "limit" // see Problem.Limit
	ErrNotStarted          Code = "not_started"
	ErrNotReleased         Code = "not_released" // packets exist, but aren't released yet
	ErrEnded               Code = "ended"
	ErrPaused              Code = "paused"
	ErrClosed              Code = "closed"
	ErrCampaignExists      Code = "campaign_exists" // with other content
	ErrAlreadyRedeemed     Code = "already_redeemed"
	ErrAlreadyReleased     Code = "already_released"
	ErrNotRedeemed         Code = "not_redeemed"
	ErrClaimParked         Code = "claim_parked"
	ErrCampaignNotFound    Code = "campaign_not_found"
	ErrClaimNotFound       Code = "claim_not_found"
	ErrInvalid             Code = "invalid" // Problem.Field names the field
	ErrIdempotencyMismatch Code = "idempotency_mismatch"
	ErrMalformed           Code = "malformed"
	ErrUnauthorized        Code = "unauthorized"
	ErrForbidden           Code = "forbidden"
	ErrTooLarge            Code = "too_large"
	ErrRateLimited         Code = "rate_limited"
	// ErrUnavailable: surely no claim was made, and nothing else was done
	// unless the error is an *OutcomeError; also if no server listens.
	ErrUnavailable    Code = "unavailable"
	ErrOutcomeUnknown Code = "outcome_unknown" // it may have been done
	// ErrNotFound: there is no such path: another service, or an older one.
	ErrNotFound         Code = "not_found"
	ErrMethodNotAllowed Code = "method_not_allowed"
	ErrInternal         Code = "internal"
)

// Error reads "client: code".
func (c Code) Error() string { return "client: " + string(c) }

// Problem is a refusal by the service. Test for its Code with errors.Is.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Code    Code   `json:"code"`
	Status  int    `json:"status"` // HTTP status
	Title   string `json:"title"`
	Detail  string `json:"detail"`
	Field   string `json:"field"`    // the refused field, for ErrInvalid
	ClaimID string `json:"claim_id"` // for ErrOutcomeUnknown: the claim's id if it was made
	Limit   Limit  `json:"-"`        // for ErrLimit, ErrUserLimit and ErrUserDayLimit
	// Remaining is the campaign's units left, for ErrSoldOut: fewer than
	// the claim requested.
	Remaining int64 `json:"remaining"`
	// ResetsAt is when the window of Limit ends; zero: never.
	ResetsAt time.Time `json:"resets_at"`
	// RetryAfter is the least time before a retry.
	RetryAfter time.Duration `json:"-"`
}

// Error reads "client: code: detail".
func (p *Problem) Error() string { return p.Code.Error() + ": " + p.Detail }

// Is reports whether target is the problem's code.
func (p *Problem) Is(target error) bool {
	return target == p.Code
}

// OutcomeError means that a call may have taken effect: it was sent, and no
// attempt got a conclusive answer. It is ErrOutcomeUnknown and wraps the
// last attempt's error.
type OutcomeError struct {
	// the call's idempotency key; repeating the call with it does it once
	// and returns the result
	Key      string
	Attempts int
	Last     error
}

// Error reports the attempts and the last error.
func (e *OutcomeError) Error() string {
	return fmt.Sprintf("%v after %d attempts: %v", ErrOutcomeUnknown, e.Attempts, e.Last)
}

// Unwrap returns both.
func (e *OutcomeError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Last} }
