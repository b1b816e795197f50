package wire

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// Code is what a storefront's program reads in a refusal.
type Code string

// The closed list of refusals.
const (
	CodeSoldOut             Code = "sold_out"
	CodeUserLimit           Code = "user_limit"
	CodeUserDayLimit        Code = "user_day_limit"
	CodeNotStarted          Code = "not_started"
	CodeNotReleased         Code = "not_released"
	CodeEnded               Code = "ended"
	CodePaused              Code = "paused"
	CodeClosed              Code = "closed"
	CodeCampaignExists      Code = "campaign_exists"
	CodeAlreadyRedeemed     Code = "already_redeemed"
	CodeAlreadyReleased     Code = "already_released"
	CodeCampaignNotFound    Code = "campaign_not_found"
	CodeClaimNotFound       Code = "claim_not_found"
	CodeInvalid             Code = "invalid"
	CodeIdempotencyMismatch Code = "idempotency_mismatch"
	CodeMalformed           Code = "malformed"
	CodeUnauthorized        Code = "unauthorized"
	CodeForbidden           Code = "forbidden"
	CodeTooLarge            Code = "too_large"
	CodeRateLimited         Code = "rate_limited"
	CodeUnavailable         Code = "unavailable"
	CodeOutcomeUnknown      Code = "outcome_unknown"
	CodeNotFound            Code = "not_found"
	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeInternal            Code = "internal"
)

// refusal is a line of the table of refusals. RetryAfter is in seconds; above 0 says that asking again may help.
type refusal struct {
	Status     int
	Title      string
	Detail     string // unless the Problem has its own
	RetryAfter int
}

// refusals maps every code to what HTTP says. It is the only such table.
var refusals = map[Code]refusal{
	CodeSoldOut:             {409, "Sold out", "Fewer units are left than were asked for.", 0},
	CodeUserLimit:           {409, "User limit reached", "This user may not have that many units of this campaign.", 0},
	CodeUserDayLimit:        {409, "User's limit for today reached", "This user may not have that many units of this campaign today.", 0},
	CodeNotStarted:          {409, "Not started", "The campaign has not started yet.", 0},
	CodeNotReleased:         {409, "Not released", "The next packets have not been released yet.", 0},
	CodeEnded:               {409, "Ended", "The campaign is over.", 0},
	CodePaused:              {409, "Paused", "The campaign is paused.", 0},
	CodeClosed:              {409, "Closed", "The campaign is closed for ever.", 0},
	CodeCampaignExists:      {409, "Campaign exists", "The id belongs to a campaign with other content.", 0},
	CodeAlreadyRedeemed:     {409, "Already redeemed", "The claim was redeemed.", 0},
	CodeAlreadyReleased:     {409, "Already released", "The claim was released.", 0},
	CodeCampaignNotFound:    {404, "Campaign not found", "There is no campaign of that id.", 0},
	CodeClaimNotFound:       {404, "Claim not found", "There is no claim of that id.", 0},
	CodeInvalid:             {422, "Invalid", "A field can't be accepted.", 0},
	CodeIdempotencyMismatch: {422, "Idempotency key used for another body", "The same Idempotency-Key came with another body before.", 0},
	CodeMalformed:           {400, "Malformed request", "The request can't be read.", 0},
	CodeUnauthorized:        {401, "Unauthorized", "A known bearer token is needed.", 0},
	CodeForbidden:           {403, "Forbidden", "This token may not do that.", 0},
	CodeTooLarge:            {413, "Too large", "The body is too large.", 0},
	CodeRateLimited:         {429, "Rate limited", "This user asks too often.", 1},
	CodeUnavailable:         {503, "Unavailable", "This request surely did nothing; an earlier one with the same key may have. Ask again.", 1},
	CodeOutcomeUnknown:      {503, "Outcome unknown", "The claim may have been made. Ask again with the same Idempotency-Key.", 1},
	CodeNotFound:            {404, "Not found", "There is nothing at this path.", 0},
	CodeMethodNotAllowed:    {405, "Method not allowed", "This path does not take this method, see Allow.", 0},
	CodeInternal:            {500, "Internal error", "The service failed; the log says more.", 0},
}

// Codes lists all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(refusals)) }

// Problem is a refusal, an RFC 9457 problem. The zero values of Detail and RetryAfter stand for those of the table.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Code       Code
	Detail     string
	Field      string // the JSON name of the refused field
	ClaimID    string // of a claim whose outcome is unknown and that had no key
	RetryAfter int    // seconds

	HangUp bool // the body was not read to its end and won't be
}

// problemJSON is a Problem on the wire.
type ProblemJSON struct {
	Type    string `json:"type" doc:"urn:dibs:problem: and the code"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Code    Code   `json:"code" doc:"what went wrong, for programs"`
	Field   string `json:"field,omitempty" doc:"the refused field, of code invalid"`
	ClaimID string `json:"claim_id,omitempty" doc:"of code outcome_unknown, when no idempotency key was sent: the id that the claim has if it was made"`

	RetryAfterMs int64 `json:"retry_after_ms,omitempty" doc:"asking again may help, but not sooner than this; as Retry-After, for each claim of a batch"`
}

func Invalid(field, reason string) *Problem {
	return &Problem{Code: CodeInvalid, Field: field, Detail: field + ": " + reason}
}

func Malformed(detail string) *Problem { return &Problem{Code: CodeMalformed, Detail: detail} }

// Error reads "code: detail".
func (p *Problem) Error() string { return string(p.Code) + ": " + p.wire().Detail }

// GetStatus is the HTTP status, in huma's words.
func (p *Problem) GetStatus() int { return refusals[p.Code].Status }

// GetHeaders are the headers that go with it, in huma's words.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	p.setHeaders(h)
	return h
}

// ContentType replaces JSON's own, in huma's words.
func (p *Problem) ContentType(string) string { return ProblemContentType[0] }

// MarshalJSON writes the RFC 9457 form.
func (p *Problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.wire()) }

func (p *Problem) wire() ProblemJSON {
	line := refusals[p.Code]
	if p.Detail != "" {
		line.Detail = p.Detail
	}
	return ProblemJSON{
		Type: "urn:dibs:problem:" + string(p.Code), Title: line.Title, Status: line.Status, Detail: line.Detail,
		Code: p.Code, Field: p.Field, ClaimID: p.ClaimID, RetryAfterMs: int64(p.RetrySeconds()) * 1000,
	}
}

var (
	JSONContentType    = []string{"application/json"}
	ProblemContentType = []string{"application/problem+json"}
	closeConnection    = []string{"close"}
	challenge          = []string{`Bearer realm="dibs"`}
)

// RetrySeconds is when to ask again; 0 says that asking again is of no use.
func (p *Problem) RetrySeconds() int { return max(p.RetryAfter, refusals[p.Code].RetryAfter) }

func (p *Problem) setHeaders(h http.Header) {
	if p.Code == CodeUnauthorized {
		h["Www-Authenticate"] = challenge
	}
	if p.HangUp {
		h["Connection"] = closeConnection
	}
	if seconds := p.RetrySeconds(); seconds > 0 {
		h["Retry-After"] = []string{strconv.Itoa(seconds)}
	}
}

// write answers with the problem and returns the status.
func (p *Problem) Write(w http.ResponseWriter) int {
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	p.setHeaders(w.Header())
	status := p.GetStatus()
	w.Header()["Content-Type"] = ProblemContentType
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
	return status
}

// plain is a refusal without anything of its own, rendered once.
type plain struct {
	status int
	header []headerLine
	body   []byte
}

// headerLine is a header and its values, which nobody may write to.
type headerLine struct {
	name   string
	values []string
}

// plains are the refusals that a rush is full of, by code.
var plains = renderPlains() //nolint:gochecknoglobals // nothing writes to it

func renderPlains() map[Code]*plain {
	all := make(map[Code]*plain, len(refusals))
	for code, line := range refusals {
		p := &Problem{Code: code}
		body, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		header := []headerLine{{"Content-Type", ProblemContentType}}
		for name, values := range p.GetHeaders() {
			header = append(header, headerLine{name, values})
		}
		all[code] = &plain{line.Status, header, body}
	}
	return all
}

// writePlain answers with a refusal that has nothing of its own and returns the status.
func WritePlain(w http.ResponseWriter, code Code) int {
	p := plains[code]
	h := w.Header()
	for i := range p.header {
		h[p.header[i].name] = p.header[i].values
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body) // a client that is gone needs no answer
	return p.status
}

// appendProblem writes a refusal; one without anything of its own is there already.
func AppendProblem(b []byte, p *Problem) []byte {
	if *p == (Problem{Code: p.Code}) {
		return append(b, plains[p.Code].body...)
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	return append(b, body...)
}
