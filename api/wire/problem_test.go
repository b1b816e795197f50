package wire_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api/wire"
)

func sent(p *wire.Problem) (*httptest.ResponseRecorder, int) {
	w := httptest.NewRecorder()
	status := p.Write(w)
	return w, status
}

// A prepared refusal must equal one that is made when needed.
func TestProblem_EveryCodeIsSentAsItIsMade(t *testing.T) {
	t.Parallel()
	for _, code := range wire.Codes() {
		shared := wire.Refuse(code)
		prepared, status := sent(shared)
		require.Equal(t, status, prepared.Code)
		require.Equal(t, shared.GetStatus(), status)
		var body wire.ProblemJSON
		require.NoError(t, json.Unmarshal(prepared.Body.Bytes(), &body))
		require.Equal(t, code, body.Code)
		require.Equal(t, status, body.Status)
		require.Equal(t, "urn:dibs:problem:"+string(code), body.Type)

		own := &wire.Problem{Code: code, Detail: body.Detail}
		made, _ := sent(own)
		require.Equal(t, made.Body.String(), prepared.Body.String())
		require.Equal(t, made.Header(), prepared.Header())
		require.Equal(t, `[`+made.Body.String(), string(own.Append([]byte(`[`))))
		marshalled, err := json.Marshal(own)
		require.NoError(t, err)
		require.Equal(t, made.Body.String(), string(marshalled), "huma writes the same")
		for name, values := range own.GetHeaders() {
			require.Equal(t, values, made.Header()[name], "huma sends the same")
		}
		require.Equal(t, "application/problem+json", own.ContentType("application/json"))
	}
}

func TestProblem_WhatItHasOfItsOwnIsSent(t *testing.T) {
	t.Parallel()
	w, status := sent(&wire.Problem{Code: wire.CodeRateLimited, Detail: "d", Field: "f", ClaimID: "c", RetryAfter: 7, HangUp: true})
	require.Equal(t, 429, status)
	require.Equal(t, "7", w.Header().Get("Retry-After"))
	require.Equal(t, "close", w.Header().Get("Connection"))
	require.JSONEq(t, `{"type":"urn:dibs:problem:rate_limited","title":"Rate limited","status":429,"detail":"d","code":"rate_limited",
		"field":"f","claim_id":"c","retry_after_ms":7000}`, w.Body.String())
	w, _ = sent(wire.Refuse(wire.CodeRateLimited))
	require.NotContains(t, w.Body.String(), `"d"`, "the shared one is as it was")
	w, _ = sent(&wire.Problem{Code: wire.CodeTooLarge, HangUp: true})
	require.Equal(t, "close", w.Header().Get("Connection"), "though it says nothing else of its own")
}
