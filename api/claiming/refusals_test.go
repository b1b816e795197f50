package claiming_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/api/claiming/form"
	"dibs/api/coalesce"
	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

type hanging struct {
	*apitest.Fake

	hangs  atomic.Bool
	probes atomic.Int64
}

func (h *hanging) wait(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return lua.ErrOutcomeUnknown
}

func (h *hanging) State(ctx context.Context, id string) (lua.State, error) {
	h.probes.Add(1)
	if err := h.wait(ctx); err != nil {
		return lua.State{}, err
	}
	return h.Fake.State(ctx, id)
}

func (h *hanging) ClaimAfter(ctx context.Context, m lua.Meta, seen lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	if err := h.wait(ctx); err != nil {
		return nil, lua.CampaignView{}, err
	}
	return h.Fake.ClaimAfter(ctx, m, seen, reqs)
}

func newHanging(campaigns ...models.Campaign) (*hanging, func(path, body string) (int, wire.ProblemJSON), func() error) {
	fake := &hanging{Fake: apitest.NewFake(campaigns...)}
	_, h, group := routes(fake, time.Now)
	ask := func(id, body string) (int, wire.ProblemJSON) {
		w := apitest.Ask(h, http.MethodPost, "/v1/campaigns/"+id+"/claims", body)
		var p wire.ProblemJSON
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return w.Code, p
	}
	return fake, ask, func() error { return group.Stop(context.Background()) }
}

type servers interface {
	claiming.Claimer
	claiming.StateReader
	claiming.Loader
	claiming.Campaigns
}

// routes are the claim routes without the rest of a server.
func routes(fake servers, clock func() time.Time) (*claiming.Routes, http.Handler, *workers.Group) {
	group := &workers.Group{}
	s := claiming.New(claiming.Config{
		Claimer: fake, States: fake, Loader: fake, Campaigns: fake, Workers: group, ClaimsPerCall: 8, ClaimsInFlight: 2,
		QueueWait: time.Second, CallTimeout: 3 * time.Second, Clock: clock,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	h := http.NewServeMux()
	h.HandleFunc("POST "+form.Path, func(w http.ResponseWriter, r *http.Request) { s.PostClaim(w, r) })
	h.HandleFunc("POST /v1/claims:batch", func(w http.ResponseWriter, r *http.Request) { s.PostBatch(w, r) })
	return s, h, group
}

func TestARefusalSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, ask, stop := newHanging(models.Campaign{ID: "c", Total: 10, PerUser: 3, PerUserPerDay: 3, TimeZone: "Asia/Tokyo"})
		status, _ := ask("c", `{"user_id":"ada"}`)
		require.Equal(t, 201, status)
		_, p := ask("c", `{"user_id":"ada","quantity":3}`)
		require.Equal(t, wire.CodeUserLimit, p.Code)
		require.Equal(t, wire.Limit{By: "user", Per: models.PerAll, Max: 3}, p.Limit)
		_, p = ask("c", `{"user_id":"bob","quantity":20}`)
		require.Equal(t, wire.CodeSoldOut, p.Code)
		require.EqualValues(t, 9, p.Remaining)
		for _, user := range []string{"bob", "cid", "dan"} {
			status, _ = ask("c", `{"user_id":"`+user+`","quantity":3}`)
			require.Equal(t, 201, status)
		}
		_, p = ask("c", `{"user_id":"eve"}`)
		require.Equal(t, wire.CodeSoldOut, p.Code)
		require.Zero(t, p.Remaining)
		today := lua.LimitHit{
			Limit: models.Limit{By: models.ByUser, Per: models.PerDay}, ResetsAt: time.Date(1999, 12, 31, 15, 0, 0, 0, time.UTC),
		}
		fake.OnClaim = func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
			return []lua.ClaimReply{{Outcome: models.OutcomeUserDayLimit, Limit: &today}}, 5, nil
		}
		time.Sleep(claiming.SoldOutFor) //nolint:forbidigo // a bubble's time
		_, p = ask("c", `{"user_id":"ada"}`)
		require.Equal(t, wire.CodeUserDayLimit, p.Code)
		require.Equal(t, "1999-12-31T15:00:00Z", p.ResetsAt.UTC().Format(time.RFC3339), "by Redis' clock, which is behind")
		require.Equal(t, []any{int64(3), models.PerDay}, []any{p.Max, p.Per})
		require.NoError(t, stop())
	})
}

// Once a hanging Redis is known, claims must be refused without
// waiting. Once it answers again, they must succeed.
func TestARedisThatHangsIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, ask, stop := newHanging(models.Campaign{ID: "c", Total: 100})
		status, _ := ask("c", `{"user_id":"ada"}`)
		require.Equal(t, 201, status)
		fake.hangs.Store(true)
		go ask("c", `{"user_id":"bob"}`)
		time.Sleep(time.Second) //nolint:forbidigo // a bubble's time
		for range 100 {
			start := time.Now()
			status, p := ask("c", `{"user_id":"cid"}`)
			require.Equal(t, 503, status)
			require.Equal(t, wire.CodeUnavailable, p.Code, "it was not sent")
			require.Less(t, time.Since(start), 100*time.Millisecond)
		}
		require.LessOrEqual(t, fake.probes.Load(), int64(4), "one asks for all")
		fake.hangs.Store(false)
		time.Sleep(time.Second) //nolint:forbidigo // a bubble's time
		status, _ = ask("c", `{"user_id":"dan"}`)
		require.Equal(t, 201, status, "without a request in between")
		time.Sleep(5 * time.Second) //nolint:forbidigo // a bubble's time
		require.NoError(t, stop())
	})
}

// Storefronts' programs compare these codes.
func TestCodes_AreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	contract := map[int]string{
		409: "sold_out user_limit user_day_limit not_started not_released ended paused closed campaign_exists already_redeemed already_released not_redeemed" +
			" claim_parked group_in_use limit claimed",
		404: "campaign_not_found claim_not_found group_not_found not_found", 422: "invalid idempotency_mismatch", 400: "malformed", 401: "unauthorized",
		403: "forbidden", 413: "too_large", 429: "rate_limited", 503: "unavailable outcome_unknown too_many_watchers", 405: "method_not_allowed", 500: "internal",
		412: "precondition_failed", 415: "unsupported_media_type",
	}
	want := map[wire.Code]int{}
	for status, codes := range contract {
		for code := range strings.FieldsSeq(codes) {
			want[wire.Code(code)] = status
		}
	}
	got := map[wire.Code]int{}
	for _, code := range wire.Codes() {
		got[code] = (&wire.Problem{Code: code}).GetStatus()
	}
	require.Equal(t, want, got)
	for _, o := range []models.Outcome{models.OutcomeClaimed, models.OutcomeReplayed} {
		require.Nil(t, form.Refusal(&coalesce.Ticket{Answer: coalesce.Answer{Reply: lua.ClaimReply{Outcome: o}}}))
	}
}

// Refusals of single claims and of batches count, whether the claim
// was sent or not. Claims and replays don't.
func TestRefusalsAreCountedByCampaign(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(models.Campaign{ID: "a", Total: 100, PerUser: 1}, models.Campaign{ID: "b", Status: models.StatusPaused})
	s, h, _ := routes(fake, time.Now)
	claim := func(id string) int {
		return apitest.Ask(h, "POST", "/v1/campaigns/"+id+"/claims", apitest.OneClaim, "Idempotency-Key: k").Code
	}
	require.Equal(t, 201, claim("a"))
	require.Equal(t, 201, claim("a"), "a replay")
	require.Equal(t, 409, claim("b"))
	require.Equal(t, 404, claim("nowhere"))
	w := apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"a","user_id":"u1"},{"campaign_id":"a","user_id":"u2"},`+
		`{"campaign_id":"b","user_id":"u"},{"campaign_id":"nowhere","user_id":"u"},{"campaign_id":"a","user_id":""}]}`)
	require.Equal(t, 200, w.Code, w.Body)
	counts := s.Answered(2)
	for _, byName := range counts {
		maps.DeleteFunc(byName, func(name string, _ int64) bool { return strings.HasPrefix(name, models.TookPrefix) })
	}
	require.Equal(t, map[string]map[string]int64{"a": {"claimed": 2, "user_limit": 1}, "b": {"paused": 2}}, counts, "a replay is no news")
	require.Empty(t, s.Answered(2), "once")
	require.Equal(t, []claiming.Tally{{CampaignID: "a", Claims: 3, ByOutcome: counts["a"]}}, s.Busiest(1))
	require.Equal(t, 409, claim("b"))
	require.EqualValues(t, 1, s.Answered(2)["b"]["paused"])
	require.Empty(t, s.Answered(0))
}
