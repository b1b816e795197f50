package claiming_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/internal/apitest"
	"dibs/lua"
	"dibs/models"
)

// nullWriter takes an answer for nothing.
type nullWriter struct {
	h      http.Header
	status int
}

func (w *nullWriter) Header() http.Header { return w.h }

func (w *nullWriter) WriteHeader(status int) { w.status = status }

func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }

type rewinder struct{ *bytes.Reader }

func (rewinder) Close() error { return nil }

// drive sends the same request over and over through h.
func drive(b *testing.B, h http.Handler, want int, headers map[string]string) {
	b.Helper()
	body := []byte(`{"user_id":"user-1234567","quantity":1}`)
	newRequest := func() (*http.Request, *bytes.Reader) {
		req := httptest.NewRequest(http.MethodPost, "/v1/campaigns/c1/claims", nil)
		req.Header.Set("Content-Type", "application/json")
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		r := bytes.NewReader(body)
		req.Body, req.ContentLength = rewinder{r}, int64(len(body))
		return req, r
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		req, r := newRequest()
		w := &nullWriter{h: http.Header{}}
		for pb.Next() {
			r.Reset(body)
			clear(w.h)
			h.ServeHTTP(w, req)
			if w.status != want {
				b.Errorf("status %d", w.status)
				return
			}
		}
	})
}

func benchRoom(outcome models.Outcome, remaining int64) *apitest.Fake {
	room := apitest.NewFake(apitest.Coupon("c1", 1_000_000_000))
	at := models.NewTime(time.Now())
	return withClaim(room, func(_ context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		replies := make([]lua.ClaimReply, len(reqs))
		for i := range reqs {
			replies[i].Outcome = outcome
			if outcome.Took() {
				replies[i].Claim = models.Claim{
					ID: reqs[i].ID.String(), CampaignID: m.ID, UserID: reqs[i].UserID, Quantity: 1, Seq: int64(i), Status: "claimed", ClaimedAt: at,
				}
			}
		}
		return replies, remaining, nil
	})
}

// benchClaimer answers without keeping what it was asked.
type benchClaimer func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error)

func (f benchClaimer) ClaimAfter(ctx context.Context, m lua.Meta, _ lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	replies, remaining, err := f(ctx, m, reqs)
	return replies, lua.CampaignView{Remaining: remaining}, err
}

func withClaim(room *apitest.Fake, claim benchClaimer) *apitest.Fake {
	room.OnClaim = claim
	return room
}

func benchServer(b *testing.B, room *apitest.Fake) http.Handler {
	b.Helper()
	return benchWith(b, room, api.Tokens{Storefront: "a-token-of-some-length-0123456789"})
}

func benchWith(b *testing.B, room *apitest.Fake, tokens api.Tokens) http.Handler {
	b.Helper()
	deps := room.Deps()
	deps.Claimer = benchClaimer(room.OnClaim)
	s, err := api.New(api.Config{Tokens: tokens}, deps)
	if err != nil {
		b.Fatal(err)
	}
	return apitest.AtHome(s.Handler())
}

var benchHeaders = map[string]string{"Authorization": "Bearer a-token-of-some-length-0123456789"}

// BenchmarkNoop is what the others stand on: a mux, a read body, a constant answer.
func BenchmarkNoop(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/campaigns/{id}/claims", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{}`))
	})
	drive(b, mux, 201, benchHeaders)
}

// BenchmarkClaimHandler is the whole handler with a claimer that costs nothing, one script call shared by all callers.
func BenchmarkClaimHandler(b *testing.B) {
	b.Run("claimed", func(b *testing.B) { drive(b, benchServer(b, benchRoom(models.OutcomeClaimed, 7)), 201, benchHeaders) })
	b.Run("claimed/64-callers", func(b *testing.B) {
		b.SetParallelism(32)
		drive(b, benchServer(b, benchRoom(models.OutcomeClaimed, 7)), 201, benchHeaders)
	})
	b.Run("sold-out", func(b *testing.B) { drive(b, benchServer(b, benchRoom(models.OutcomeSoldOut, 0)), 409, benchHeaders) })
	b.Run("sold-out/no-tokens", func(b *testing.B) {
		drive(b, benchWith(b, benchRoom(models.OutcomeSoldOut, 0), api.Tokens{}), 409, nil)
	})
	b.Run("user-limit", func(b *testing.B) { drive(b, benchServer(b, benchRoom(models.OutcomeUserLimit, 7)), 409, benchHeaders) })
}

func BenchmarkDecodeClaim(b *testing.B) {
	body := []byte(`{"user_id":"user-1234567","quantity":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, code := claiming.DecodeClaim(body); code != "" {
			b.Fatal(code)
		}
	}
}

func BenchmarkAppendClaim(b *testing.B) {
	c := models.Claim{
		ID: "01a1fc7e-4431-75b1-a79f-370f9b06c2a1", CampaignID: "c1", UserID: "user-1234567", Quantity: 1, Seq: 123456, Status: "claimed",
		ClaimedAt: models.NewTime(time.Now()),
	}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = claiming.AppendClaim(buf[:0], &c)
	}
}
