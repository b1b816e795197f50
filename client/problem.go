package client

import (
	"fmt"
	"time"
)

// Code says why the service refused. It is an error, so that errors.Is(err,
// client.ErrSoldOut) asks for it; a code that this package does not know yet is
// asked for as client.Code("the_code").
type Code string //nolint:errname // RFC 9457 and the service call it so

// The codes of the service.
const (
	ErrSoldOut             Code = "sold_out"
	ErrUserLimit           Code = "user_limit"
	ErrUserDayLimit        Code = "user_day_limit"
	ErrLimit               Code = "limit" // Problem.Limit says which
	ErrNotStarted          Code = "not_started"
	ErrNotReleased         Code = "not_released" // packets are there, their time has not come
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
	// surely nothing was done; also when no one listens
	ErrUnavailable    Code = "unavailable"
	ErrOutcomeUnknown Code = "outcome_unknown" // it may have been done
	// nothing is at that path: another service, or an older one
	ErrNotFound         Code = "not_found"
	ErrMethodNotAllowed Code = "method_not_allowed"
	ErrInternal         Code = "internal"
)

// Error reads "client: code".
func (c Code) Error() string { return "client: " + string(c) }

// Problem is a refusal by the service. Test for its Code with errors.Is.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Code    Code   `json:"code"`
	Status  int    `json:"status"` // of HTTP
	Title   string `json:"title"`
	Detail  string `json:"detail"`
	Field   string `json:"field"`    // the refused field, of ErrInvalid
	ClaimID string `json:"claim_id"` // of ErrOutcomeUnknown: the id of the claim if it was made
	Limit   Limit  `json:"-"`        // of ErrLimit, ErrUserLimit and ErrUserDayLimit
	// Remaining is what is left of a campaign, of ErrSoldOut: fewer units than
	// the claim asked for.
	Remaining int64 `json:"remaining"`
	// ResetsAt is when the window of Limit ends; zero: it never does.
	ResetsAt time.Time `json:"resets_at"`
	// RetryAfter is how long the service wants to be left alone before the same
	// is asked again.
	RetryAfter time.Duration `json:"-"`
}

// Error reads "client: code: detail".
func (p *Problem) Error() string { return p.Code.Error() + ": " + p.Detail }

// Is reports whether target is the problem's code.
func (p *Problem) Is(target error) bool {
	return target == p.Code
}

// OutcomeError says that a call may have done what it asked for: it was sent,
// and no attempt got a conclusive answer. It is ErrOutcomeUnknown, and what the
// last attempt ended with.
type OutcomeError struct {
	// idempotency key of the call; the same call with this key does it once,
	// and tells
	Key      string
	Attempts int
	Last     error
}

// Error reports the attempts and the last error.
func (e *OutcomeError) Error() string {
	return fmt.Sprintf("%v after %d attempts: %v", ErrOutcomeUnknown, e.Attempts, e.Last)
}

// Unwrap gives both.
func (e *OutcomeError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Last} }
