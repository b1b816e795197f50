package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"dibs/models"
)

// Code identifies a refusal for programs.
type Code string

// The closed list of refusals.
const (
	CodeSoldOut              Code = "sold_out"
	CodeUserLimit            Code = "user_limit"
	CodeUserDayLimit         Code = "user_day_limit"
	CodeLimit                Code = "limit"
	CodeNotStarted           Code = "not_started"
	CodeNotReleased          Code = "not_released"
	CodeEnded                Code = "ended"
	CodePaused               Code = "paused"
	CodeClosed               Code = "closed"
	CodeCampaignExists       Code = "campaign_exists"
	CodeAlreadyRedeemed      Code = "already_redeemed"
	CodeAlreadyReleased      Code = "already_released"
	CodeNotRedeemed          Code = "not_redeemed"
	CodeClaimParked          Code = "claim_parked"
	CodeCampaignNotFound     Code = "campaign_not_found"
	CodeClaimNotFound        Code = "claim_not_found"
	CodeGroupNotFound        Code = "group_not_found"
	CodeGroupInUse           Code = "group_in_use"
	CodeClaimed              Code = "claimed"
	CodeInvalid              Code = "invalid"
	CodeIdempotencyMismatch  Code = "idempotency_mismatch"
	CodePreconditionFailed   Code = "precondition_failed"
	CodeMalformed            Code = "malformed"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeUnauthorized         Code = "unauthorized"
	CodeForbidden            Code = "forbidden"
	CodeTooLarge             Code = "too_large"
	CodeRateLimited          Code = "rate_limited"
	CodeUnavailable          Code = "unavailable"
	CodeOutcomeUnknown       Code = "outcome_unknown"
	CodeTooManyWatchers      Code = "too_many_watchers"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeInternal             Code = "internal"
)

type refusal struct {
	status int
	title  string
	detail string // unless the Problem has its own
}

// refusals maps every code to its HTTP answer. It is the only such table.
var refusals = map[Code]refusal{
	CodeSoldOut: {409, "Sold out", "The campaign has no units left."},
	CodeUserLimit: {409, "User limit reached",
		"The claim would give this user more units of the campaign than per_user allows."},
	CodeUserDayLimit: {409, "User's limit for today reached",
		"The claim would give this user more units today than per_user_per_day allows. The next day begins at midnight in the campaign's time zone."},
	CodeLimit: {409, "Limit reached",
		"The claim would give a subject more units than a limit of the campaign allows: by says which, per and max how many."},
	CodeNotStarted: {409, "Not started", "The campaign has not started: its starts_at has not come."},
	CodeNotReleased: {409, "Not released",
		"The packets that are left are not released: their release_at has not come."},
	CodeEnded:  {409, "Ended", "The campaign has ended: its ends_at has passed."},
	CodePaused: {409, "Paused", "An operator has paused the campaign."},
	CodeClosed: {409, "Closed", "The campaign is closed and can't be opened again."},
	CodeCampaignExists: {409, "Campaign exists",
		"Another campaign has this id. Choose another id, or change that campaign."},
	CodeAlreadyRedeemed: {409, "Already redeemed", "The claim was redeemed."},
	CodeAlreadyReleased: {409, "Already released", "The claim was released."},
	CodeNotRedeemed:     {409, "Not redeemed", "No order has redeemed the claim."},
	CodeClaimParked: {409, "Claim parked",
		"The claim was accepted and counts, but MySQL refuses its row. An operator has to decide about it: see dibs parked."},
	CodeCampaignNotFound: {404, "Campaign not found", "No campaign has this id."},
	CodeClaimNotFound:    {404, "Claim not found", "No claim has this id."},
	CodeGroupNotFound:    {404, "Group not found", "No consumer group of this name is registered."},
	CodeGroupInUse: {409, "Group in use",
		"A process reads for this group. Stop it first, and ask again after ten seconds: what the group has not read may be trimmed once it is removed."},
	CodeClaimed: {409, "Claimed",
		"Claims were made of the campaign, so it can't be deleted. Close it instead."},
	CodeInvalid: {422, "Invalid", "A field has a value that is not allowed."},
	CodeIdempotencyMismatch: {422, "Idempotency key used for another body",
		"An earlier request used this Idempotency-Key with another body. Send a new key with a new request."},
	CodePreconditionFailed: {412, "Precondition failed",
		"The campaign was changed since: If-Match names none of its present ETags. Read it again, and decide again."},
	CodeMalformed: {400, "Malformed request", "The service can't read the request."},
	CodeUnsupportedMediaType: {415, "Unsupported media type",
		"The body must be JSON, as it is: Content-Type application/json, no Content-Encoding."},
	CodeUnauthorized: {401, "Unauthorized", "The request has no valid token. Send one as Authorization: Bearer."},
	CodeForbidden: {403, "Forbidden",
		"The token does not allow this request. Send the token of a role that may do it."},
	CodeTooLarge:    {413, "Too large", "The body is too large."},
	CodeRateLimited: {429, "Rate limited", "This user sends too many claims. Wait as long as Retry-After says."},
	CodeUnavailable: {503, "Unavailable",
		"The service can't answer now. This request did nothing; an earlier one with the same key may have. Send it again."},
	CodeOutcomeUnknown: {503, "Outcome unknown",
		"The claim may have been made. Send it again with its Idempotency-Key to find out."},
	CodeTooManyWatchers: {503, "Too many watchers",
		"This process has as many watchers as it may have. Watch another process, or wait until someone leaves."},
	CodeNotFound: {404, "Not found", "This path does not exist."},
	CodeMethodNotAllowed: {405, "Method not allowed",
		"This path does not take this method. Allow lists those that it takes."},
	CodeInternal: {500, "Internal error", "The service failed. Its log has the cause."},
}

// retryAfter is the seconds after which a retry may help; 0: it won't.
var retryAfter = map[Code]int{CodeRateLimited: 1, CodeUnavailable: 1, CodeOutcomeUnknown: 1, CodeTooManyWatchers: 5}

// ClaimCodes are the possible refusals of a claim with a valid token.
var ClaimCodes = []Code{
	CodeSoldOut, CodeUserLimit, CodeUserDayLimit, CodeLimit, CodeNotStarted, CodeNotReleased, CodeEnded,
	CodePaused, CodeClosed, CodeCampaignNotFound, CodeInvalid, CodeIdempotencyMismatch, CodeMalformed,
	CodeTooLarge, CodeUnsupportedMediaType, CodeForbidden, CodeRateLimited, CodeUnavailable, CodeOutcomeUnknown, CodeInternal,
}

// Codes lists all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(refusals)) }

// Problem is a refusal, an RFC 9457 problem. Zero Detail and RetryAfter
// take the table's values.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Code       Code
	Detail     string
	Field      string // the JSON name of the refused field
	ClaimID    string // of a keyless claim whose outcome is unknown
	RetryAfter int    // seconds
	HangUp     bool   // the body wasn't read to its end and won't be
	Rate       Rate   // the exceeded one, of code rate_limited
	Limit      Limit  // of codes limit, user_limit and user_day_limit
	Remaining  int64  // of code sold_out: units left, too few for the claim
}

// Limit is a campaign's limit that a claim exceeds.
type Limit struct {
	By       string      `json:"by,omitempty" doc:"of codes limit, user_limit and user_day_limit: user, or the name of the subject"`
	Per      models.Per  `json:"per,omitempty" enum:"all,hour,day,week,month" doc:"of these codes: the window"`
	Max      int64       `json:"max,omitempty" doc:"of these codes: units"`
	ResetsAt models.Time `json:"resets_at,omitzero" doc:"of these codes, unless per is all: when the next window begins"`
}

// Rate is Quota requests in Seconds, for each Of.
type Rate struct {
	Of             string
	Quota, Seconds int
}

// NewRate describes a token bucket of size quota.
func NewRate(of string, perSecond float64, quota int) Rate {
	return Rate{Of: of, Quota: quota, Seconds: max(1, int(math.Ceil(float64(quota)/perSecond)))}
}

// ProblemJSON is a Problem on the wire.
type ProblemJSON struct {
	Type    string `json:"type" doc:"urn:dibs:problem: and the code"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Code    Code   `json:"code" doc:"what went wrong, for programs"`
	Field   string `json:"field,omitempty" doc:"the refused field, of code invalid"`
	ClaimID string `json:"claim_id,omitempty" doc:"of code outcome_unknown, when no idempotency key was sent: the id that the claim has if it was made"`

	Limit

	Remaining int64 `json:"remaining,omitempty" doc:"of code sold_out: units that are left, fewer than the claim asks for; absent: none"`

	RetryAfterMs int64 `json:"retry_after_ms,omitempty" doc:"a retry may help, but not sooner than this; like Retry-After, for each claim of a batch"`
}

// Refuse is the problem of a code without details. It is shared: don't
// modify it.
func Refuse(code Code) *Problem { return refused[code].problem }

// Invalid refuses a field.
func Invalid(field, reason string) *Problem {
	return &Problem{Code: CodeInvalid, Field: field, Detail: field + ": " + reason}
}

// InvalidID refuses a field that is no valid id, see models.ErrID; nil if
// err is nil.
func InvalidID(field string, err error) *Problem {
	if err == nil {
		return nil
	}
	// without the sentinel's text
	return Invalid(field, err.Error()[len(models.ErrID.Error())+2:])
}

// NotYours refuses another user's data to a user's token.
func NotYours(user string) *Problem {
	return &Problem{Code: CodeForbidden, Detail: "The token is of user " + user + ", and is good for what is this user's alone."}
}

// Malformed refuses an unreadable request.
func Malformed(detail string) *Problem { return &Problem{Code: CodeMalformed, Detail: detail} }

// Error reads "code: detail".
func (p *Problem) Error() string { return string(p.Code) + ": " + p.JSON().Detail }

// GetStatus is the HTTP status, for huma.
func (p *Problem) GetStatus() int { return refusals[p.Code].status }

// GetHeaders are the answer's headers, for huma.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Code == CodeUnauthorized {
		h["Www-Authenticate"] = []string{`Bearer realm="dibs"`}
	}
	if p.HangUp {
		h["Connection"] = []string{"close"}
	}
	if seconds := p.RetrySeconds(); seconds > 0 {
		h["Retry-After"] = []string{strconv.Itoa(seconds)}
	}
	if p.Rate != (Rate{}) { // see draft-ietf-httpapi-ratelimit-headers
		h["Ratelimit-Policy"] = []string{fmt.Sprintf("%q;q=%d;w=%d", p.Rate.Of, p.Rate.Quota, p.Rate.Seconds)}
		h["Ratelimit"] = []string{fmt.Sprintf("%q;r=0;t=%d", p.Rate.Of, p.RetrySeconds())}
	}
	return h
}

// RetrySeconds is the seconds after which a retry may help; 0: it won't.
func (p *Problem) RetrySeconds() int { return max(p.RetryAfter, retryAfter[p.Code]) }

// ContentType replaces JSON's own, for huma.
func (p *Problem) ContentType(string) string { return ProblemContentType[0] }

// MarshalJSON writes the RFC 9457 form.
func (p *Problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.JSON()) }

// JSON is the problem as it is written.
func (p *Problem) JSON() ProblemJSON {
	line := refusals[p.Code]
	return ProblemJSON{
		Type: "urn:dibs:problem:" + string(p.Code), Title: line.title, Status: line.status, Detail: cmp.Or(p.Detail, line.detail),
		Code: p.Code, Field: p.Field, ClaimID: p.ClaimID, Limit: p.Limit, Remaining: p.Remaining, RetryAfterMs: int64(p.RetrySeconds()) * 1000,
	}
}

// Values of Content-Type, never modified.
var (
	JSONContentType    = []string{"application/json"}
	ProblemContentType = []string{"application/problem+json"}
)

// Write sends the problem and returns the status.
func (p *Problem) Write(w http.ResponseWriter) int {
	a := p.answer()
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a disconnected client needs no answer
	return a.status
}

// Append adds the problem's JSON to b.
func (p *Problem) Append(b []byte) []byte { return append(b, p.answer().body...) }

type answer struct {
	problem *Problem
	status  int
	header  http.Header
	body    []byte
}

// refused are the prepared answers of problems without details, by code.
// Most answers of a rush are such refusals.
var refused = renderAll() //nolint:gochecknoglobals // nothing writes to it

func renderAll() map[Code]answer {
	all := make(map[Code]answer, len(refusals))
	for code := range refusals {
		all[code] = render(&Problem{Code: code})
	}
	return all
}

func (p *Problem) answer() answer {
	if ready := refused[p.Code]; *p == *ready.problem {
		return ready
	}
	return render(p)
}

func render(p *Problem) answer {
	body, err := json.Marshal(p.JSON())
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	header := p.GetHeaders()
	header["Content-Type"] = ProblemContentType
	return answer{problem: p, status: p.GetStatus(), header: header, body: body}
}
