package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/client"
)

// scripted answers attempts in order, the last answer repeatedly. It
// records what was sent and when.
type scripted struct {
	answers []func() (*http.Response, error)
	keys    []string
	bodies  []string
	at      []time.Time
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	body := []byte(nil)
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
	}
	next := s.answers[min(len(s.at), len(s.answers)-1)]
	s.at, s.keys, s.bodies = append(s.at, time.Now()), append(s.keys, req.Header.Get("Idempotency-Key")), append(s.bodies, string(body))
	return next()
}

func problem(status int, code client.Code, headers ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return respond(status, `{"code":"`+string(code)+`","status":418,"detail":"d","title":"t","new":1}`, headers...), nil
	}
}

func answered(status int, body string, headers ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) { return respond(status, body, headers...), nil }
}

func broken() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

const oneClaim = `{"id":"c1","user_id":"u","new":{"field":1}}`

// scenario is a client in a synctest bubble.
func scenario(t *testing.T, answers ...func() (*http.Response, error)) (*client.Client, *scripted) {
	t.Helper()
	s := &scripted{answers: answers}
	c, err := client.New(client.Config{BaseURL: "http://dibs.test", HTTP: &http.Client{Transport: s}})
	require.NoError(t, err)
	return c, s
}

func claimU(ctx context.Context, c *client.Client) (client.Claim, error) {
	return c.Claim(ctx, client.ClaimRequest{CampaignID: "c", UserID: "u"})
}

// An event may name 500 claims that were given up.
func TestLedger_AFullPageOfLongEventsIsRead(t *testing.T) {
	t.Parallel()
	event := `{"type":"claims.given_up","ids":["` + strings.Repeat(uuid.NewString()+`","`, 499) + uuid.NewString() + `"]}`
	page := `{"events":[` + strings.Repeat(event+",", 999) + event + `]}`
	c, _ := scenario(t, answered(200, page))
	read := 0
	for _, err := range c.Ledger(t.Context(), "spring") {
		require.NoError(t, err)
		read++
	}
	require.Equal(t, 1000, read)
}

func TestRetry_TheSameIsSentUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := scenario(t, problem(503, client.ErrUnavailable), problem(503, client.ErrOutcomeUnknown), problem(429, client.ErrRateLimited),
			answered(502, "<html>"), answered(201, oneClaim, "Idempotent-Replayed", "true"))
		claim, err := claimU(t.Context(), c)
		require.NoError(t, err)
		require.True(t, claim.Replayed)
		require.Equal(t, "c1", claim.ID)
		require.Len(t, s.keys, 5)
		require.NoError(t, uuid.Validate(s.keys[0]))
		for i := range s.keys {
			require.Equal(t, s.keys[0], s.keys[i])
			require.Equal(t, s.bodies[0], s.bodies[i])
		}
		_, err = claimU(t.Context(), c)
		require.NoError(t, err)
		require.NotEqual(t, s.keys[0], s.keys[5], "another claim, another key")
		_, err = c.Claim(t.Context(), client.ClaimRequest{CampaignID: "c", UserID: "u", Key: "mine"})
		require.NoError(t, err)
		require.Equal(t, "mine", s.keys[6])
	})
}

func TestRetry_WaitsAsLongAsIsAskedForAndLongerEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := scenario(t, problem(503, client.ErrUnavailable, "Retry-After", "7"), problem(429, client.ErrRateLimited, "Retry-After", "3"),
			answered(503, "", "Retry-After", "2"), problem(503, client.ErrUnavailable), answered(201, oneClaim))
		_, err := claimU(t.Context(), c)
		require.NoError(t, err)
		for i, asked := range []time.Duration{7 * time.Second, 3 * time.Second, 2 * time.Second, 0} {
			waited, mean := s.at[i+1].Sub(s.at[i])-asked, client.DefaultInitialBackoff<<i
			require.GreaterOrEqual(t, waited, mean/2, i)
			require.LessOrEqual(t, waited, mean*3/2+1, i)
		}
	})
}

// A claim that the first attempt may have made stays in doubt, whatever
// later attempts surely didn't do.
func TestRetry_DoubtStaysUntilAnAnswerTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := scenario(t, broken, problem(503, client.ErrUnavailable))
		_, err := claimU(t.Context(), c)
		require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		var unknown *client.OutcomeError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, s.keys[0], unknown.Key)
		require.Equal(t, client.DefaultAttempts, unknown.Attempts)
		require.ErrorIs(t, err, client.ErrUnavailable)

		c, _ = scenario(t, problem(503, client.ErrOutcomeUnknown), problem(409, client.ErrSoldOut))
		_, err = claimU(t.Context(), c)
		require.ErrorIs(t, err, client.ErrSoldOut)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown, "known keys are answered first: nothing was claimed")

		c, _ = scenario(t, problem(503, client.ErrOutcomeUnknown))
		_, err = c.GetClaim(t.Context(), "x")
		require.NotErrorAs(t, err, &unknown, "a read does nothing")
	})
}

// The service says of a claim alone that nothing was done.
func TestRetry_WhatIsUnavailableMayBeDoneUnlessItIsAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := scenario(t, problem(503, client.ErrUnavailable))
		_, err := claimU(t.Context(), c)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
		_, err = c.Redeem(t.Context(), "c1", "order")
		require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		_, err = c.PatchCampaign(t.Context(), "c", client.CampaignPatch{})
		require.ErrorIs(t, err, client.ErrOutcomeUnknown, "it is stored, perhaps, and Redis works by what was")
		require.ErrorIs(t, err, client.ErrUnavailable)
		_, err = c.GetClaim(t.Context(), "c1")
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
	})
}

func TestRetry_ATellingAnswerIsTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for status, code := range map[int]client.Code{
			409: client.ErrSoldOut, 404: client.ErrCampaignNotFound, 422: client.ErrInvalid, 400: client.ErrMalformed, 401: client.ErrUnauthorized,
			403: client.ErrForbidden, 413: client.ErrTooLarge, 405: client.ErrMethodNotAllowed, 500: client.ErrInternal, 418: "from_next_year",
		} {
			c, s := scenario(t, problem(status, code))
			_, err := claimU(t.Context(), c)
			require.ErrorIs(t, err, code)
			require.Equal(t, status == 500, errors.Is(err, client.ErrOutcomeUnknown))
			var p *client.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, status, p.Status)
			require.Len(t, s.at, 1)
		}
	})
}

func TestRetry_NeverWaitsBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := scenario(t, problem(503, client.ErrUnavailable, "Retry-After", "60"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		_, err := claimU(ctx, c)
		require.ErrorIs(t, err, client.ErrUnavailable)
		require.Zero(t, time.Since(start), "waiting for it would be in vain")
		require.Len(t, s.at, 1)

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = claimU(ctx, c)
		require.ErrorIs(t, err, client.ErrUnavailable)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAnswers_ThatAreNoneOfTheServiceAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]func() (*http.Response, error){
			"too long": answered(200, `{"id":"`+strings.Repeat("x", 9<<20)+`"}`), "no JSON": answered(200, "<html>"),
			"elsewhere": answered(302, "", "Location", "http://elsewhere.test/"), "a 404 of others": answered(404, "nginx"),
		} {
			c, s := scenario(t, answer)
			_, err := c.GetClaim(t.Context(), "x")
			require.ErrorIs(t, err, client.ErrAnswer, name)
			_, err = claimU(t.Context(), c)
			require.ErrorIs(t, err, client.ErrAnswer, name)
			require.Equal(t, name != "a 404 of others", errors.Is(err, client.ErrOutcomeUnknown), name)
			require.LessOrEqual(t, len(s.at), 4, name)
		}
	})
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]client.Config{
		"BaseURL":     {},
		"http://":     {BaseURL: "localhost:8080"},
		"no password": {BaseURL: "http://u:p@h"},
		"one line":    {BaseURL: "http://h", Token: "a\nb"},
		"Attempts":    {BaseURL: "http://h", Attempts: 1000},
	} {
		_, err := client.New(cfg)
		require.ErrorIs(t, err, client.ErrConfig, field)
		require.ErrorContains(t, err, field)
	}
}
