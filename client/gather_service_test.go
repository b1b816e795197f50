package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/client"
)

// holder is a transport that holds back holdUser's claim, and records the
// bodies of batches.
type holder struct {
	http.Transport

	held    chan struct{} // receives when the claim arrives
	release chan struct{}

	mu      sync.Mutex
	batched []string // bodies
}

const holdUser = "on-hold"

func (h *holder) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/claims:batch") || strings.HasSuffix(req.URL.Path, "/claims") {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		switch {
		case strings.HasSuffix(req.URL.Path, ":batch"):
			h.mu.Lock()
			h.batched = append(h.batched, string(body))
			h.mu.Unlock()
		case strings.Contains(string(body), holdUser):
			h.held <- struct{}{}
			<-h.release
		}
	}
	return h.Transport.RoundTrip(req)
}

func (h *holder) wasBatched(user string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, err := json.Marshal(user)
	return err == nil && strings.Contains(strings.Join(h.batched, ""), `"user_id":`+string(text))
}

type one struct {
	user  string
	units int64
	key   string
	code  client.Code // "" is a claim
	alone bool        // never in a batch
}

type scene struct {
	campaign string
	token    string
	claims   map[string]one
}

// resultOf is all that a caller can see, except ids and times.
func resultOf(c client.Claim, err error) string {
	var p *client.Problem
	var unknown *client.OutcomeError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprint("unknown after ", unknown.Attempts)
	case errors.As(err, &p):
		return fmt.Sprintf("%+v", *p)
	case err != nil:
		return err.Error()
	}
	return fmt.Sprint(c.UserID, c.Quantity, c.Status, c.Replayed, c.PacketID != "", c.Amount != nil, c.Currency, c.ExpiresAt != nil, c.Seq > 0, c.ID != "")
}

// play makes a scene's claims while another claim of its campaign is in
// flight, and returns each caller's result.
func (s scene) play(t *testing.T, url string, batch int) map[string]string {
	t.Helper()
	h := &holder{held: make(chan struct{}, 1), release: make(chan struct{})}
	cfg := client.Config{BaseURL: url, Token: s.token, Batch: batch, Connections: 1, HTTP: &http.Client{Transport: h}}
	cfg.Attempts, cfg.InitialBackoff = 2, time.Millisecond
	c := connect(t, cfg)
	var g errgroup.Group
	g.Go(func() error {
		_, _ = c.Claim(t.Context(), client.ClaimRequest{CampaignID: s.campaign, UserID: holdUser})
		return nil
	})
	<-h.held
	var mu sync.Mutex
	results, waiting := map[string]string{}, 0
	for name, o := range s.claims {
		if !o.alone {
			waiting++
		}
		g.Go(func() error {
			claim, err := c.Claim(t.Context(), client.ClaimRequest{CampaignID: s.campaign, UserID: o.user, Quantity: o.units, Key: o.key})
			if o.code != "" && !errors.Is(err, o.code) || o.code == "" && err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			results[name] = resultOf(claim, err)
			return nil
		})
	}
	if batch != 1 {
		require.Eventually(t, func() bool { return c.Queued(s.campaign) == waiting }, time.Minute, time.Millisecond)
	}
	close(h.release)
	require.NoError(t, g.Wait())
	for name, o := range s.claims {
		require.Equal(t, batch != 1 && !o.alone, h.wasBatched(o.user), name)
	}
	return results
}

func conformance(t *testing.T, admin *client.Client, prefix string) []scene {
	t.Helper()
	made := func(name string, c client.NewCampaign) string {
		t.Helper()
		c.ID, c.Kind = prefix+name, client.KindCoupon
		if c.Currency != "" {
			c.Kind = client.KindPacket
		} else {
			c.Total = new(int64(100))
		}
		_, _, err := admin.CreateCampaign(t.Context(), c)
		require.NoError(t, err)
		return c.ID
	}
	has := func(campaign string) {
		t.Helper()
		_, err := admin.Claim(t.Context(), client.ClaimRequest{CampaignID: campaign, UserID: "has", Key: "k"})
		require.NoError(t, err)
	}
	open := made("open", client.NewCampaign{PerUser: new(int64(1)), HoldFor: client.Duration(15 * time.Minute)})
	day := made("day", client.NewCampaign{PerUserPerDay: 1})
	sold, packets := made("sold", client.NewCampaign{}), made("packets", client.NewCampaign{Currency: "EUR"})
	has(open)
	has(day)
	has(sold)
	_, err := admin.PatchCampaign(t.Context(), sold, client.CampaignPatch{Total: new(int64(1))})
	require.NoError(t, err)
	_, err = admin.AddPackets(t.Context(), packets, client.NewPackets{Count: 5, Amount: 50, Split: client.SplitEven})
	require.NoError(t, err)
	two := func(campaign string, code client.Code) scene {
		return scene{campaign: campaign, claims: map[string]one{"a": {user: "a", code: code}, "b": {user: "b", units: 1, code: code}}}
	}
	return []scene{
		{campaign: open, claims: map[string]one{
			"new": {user: "new"}, "with a key": {user: "keyed", key: "mine"}, "any letters": {user: "Zoë & <co>"},
			"again": {user: "has", key: "k"}, "the limit": {user: "has", code: client.ErrUserLimit},
			"the key of another body": {user: "has", units: 2, key: "k", code: client.ErrIdempotencyMismatch},
			"no user":                 {code: client.ErrInvalid}, "a long user": {user: strings.Repeat("u", 129), code: client.ErrInvalid},
			"a huge user": {user: strings.Repeat("u", 5000), code: client.ErrTooLarge}, "too few": {user: "few", units: -1, code: client.ErrInvalid},
			"what replaces other letters": {user: `Zo\ufffd` + "\ufffd"},
			"too many":                    {user: "many", units: 10_000_000, code: client.ErrInvalid},
			"a long key":                  {user: "long", key: strings.Repeat("k", 256), code: client.ErrInvalid},
		}},
		{campaign: open, claims: map[string]one{
			"blanks around a key": {user: "has", key: " k ", alone: true}, "a key of letters": {user: "zoë", key: "zoë", alone: true},
			"no UTF-8":           {user: "Zo\xeb", code: client.ErrMalformed, alone: true},
			"a key of two lines": {user: "lines", key: "a\nb", code: client.ErrOutcomeUnknown, alone: true},
		}},
		{campaign: day, claims: map[string]one{"a": {user: "a"}, "b": {user: "has", code: client.ErrUserDayLimit}}},
		{campaign: packets, claims: map[string]one{"one": {user: "a"}, "two": {user: "b", units: 2, code: client.ErrInvalid}}},
		two(sold, client.ErrSoldOut), two(prefix+"none", client.ErrCampaignNotFound), two("a/b", client.ErrInvalid), two("", client.ErrNotFound),
		{campaign: open, token: viewerToken, claims: two(open, client.ErrForbidden).claims},
		{campaign: open, token: "guess", claims: two(open, client.ErrUnauthorized).claims},
	}
}

// A shared request must give each caller exactly the result of a separate
// request.
func TestConformance_SharedAnswersAreThoseOfARequestOfItsOwn(t *testing.T) {
	t.Parallel()
	url := withTokens(t)
	admin := connect(t, client.Config{BaseURL: url, Token: adminToken})
	single, shared := conformance(t, admin, "single-"), conformance(t, admin, "shared-")
	for i := range single {
		for _, s := range []*scene{&single[i], &shared[i]} {
			if s.token == "" {
				s.token = storefrontToken
			}
		}
		want := single[i].play(t, url, 1)
		require.Len(t, want, len(single[i].claims))
		require.Equal(t, want, shared[i].play(t, url, 0), single[i].campaign)
	}
}

// Callers leave at any moment. Each result must be true: a claim was made,
// and a claim reported as surely not made wasn't.
func TestService_WhoeverLeavesIsToldTheTruth(t *testing.T) {
	t.Parallel()
	url := serve(t)
	direct := connect(t, client.Config{BaseURL: url})
	shop := connect(t, client.Config{BaseURL: url, Connections: 8})
	const users = 600
	id := coupon(t, direct, users, 0)
	claim := func(ctx context.Context, c *client.Client, i int) (client.Claim, error) {
		return c.Claim(ctx, client.ClaimRequest{CampaignID: id, UserID: fmt.Sprint("u", i), Key: fmt.Sprint("k", i)})
	}
	var results [users]outcome
	var g errgroup.Group
	for i := range results {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%60)*time.Millisecond)
			defer cancel()
			if i%4 == 0 {
				ctx = t.Context()
			}
			results[i].claim, results[i].err = claim(ctx, shop, i)
			return nil
		})
	}
	require.NoError(t, g.Wait())
	met := map[string]int{}
	for i, o := range results {
		again, err := claim(t.Context(), direct, i)
		require.NoError(t, err)
		switch {
		case o.err == nil:
			met["made"]++
			require.Equal(t, o.claim.ID, again.ID)
			require.True(t, again.Replayed)
		case errors.Is(o.err, client.ErrOutcomeUnknown):
			met["unknown"]++
		default:
			met["not made"]++
			require.ErrorIs(t, o.err, client.ErrUnavailable)
			require.False(t, again.Replayed, "it was surely not made")
		}
		require.True(t, i%4 != 0 || o.err == nil, "who stays is not disturbed: %v", o.err)
	}
	t.Log(met)
	require.EqualValues(t, users, claimed(t, direct, id))
}

// If a kept connection breaks during a claim, net/http resends it by
// itself. The answer is only about the second sending. The first may have
// made the claim.
func TestRetry_WhatNetHTTPSentTwiceMayBeDone(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch calls.Add(1) {
		case 1: // the connection is kept
			_, _ = w.Write([]byte(oneClaim))
		case 2:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"unavailable","status":503}`))
		}
	}))
	defer server.Close()
	c := connect(t, client.Config{BaseURL: server.URL, Connections: 1, Attempts: 1})
	_, err := c.GetClaim(t.Context(), "x")
	require.NoError(t, err)
	_, err = c.Claim(t.Context(), client.ClaimRequest{CampaignID: "c", UserID: "u", Key: "k"})
	require.EqualValues(t, 3, calls.Load())
	var unknown *client.OutcomeError
	require.ErrorAs(t, err, &unknown)
	require.ErrorIs(t, err, client.ErrUnavailable, "the last answer")
}
