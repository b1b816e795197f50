package claiming_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestClaim_IsAnsweredWithTheClaim(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	w := apitest.Ask(apitest.NewServer(t, fake, api.Config{}), "POST", "/v1/campaigns/c1/claims", `{"user_id":"Zoë <1>","quantity":3}`)
	require.Equal(t, 201, w.Code, w.Body)
	var c models.Claim
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
	require.Equal(t, models.Claim{
		ID: fake.Calls[0][0].ID.String(), CampaignID: "c1", UserID: "Zoë <1>", Quantity: 3, Seq: 1, Status: "claimed",
		ClaimedAt: models.NewTime(apitest.Now),
	}, c)
	require.EqualValues(t, 7, fake.Calls[0][0].ID.Version())
}

func TestClaim_SameKeyGetsTheFirstAnswerByteForByte(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 10)), api.Config{})
	first := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Idempotency-Key: k")
	again := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", ` { "quantity" : 1 , "user_id" : "\u00751" } `, "Idempotency-Key: k")
	require.Equal(t, 201, again.Code)
	require.Equal(t, first.Body.String(), again.Body.String())
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))

	other := apitest.Answered(t, 422, h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u2"}`, "Idempotency-Key: k")
	apitest.RequireProblem(t, 422, other.Header(), other.Body.Bytes(), "idempotency_mismatch")
	control := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Idempotency-Key: k2")
	require.NotEqual(t, first.Body.String(), control.Body.String(), "another key is another claim")
}

func TestClaim_EveryRefusalOfTheScriptHasItsCode(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[models.Outcome]struct {
		status int
		code   string
	}{
		models.OutcomeSoldOut: {409, "sold_out"}, models.OutcomeUserLimit: {409, "user_limit"},
		models.OutcomeUserDayLimit: {409, "user_day_limit"}, models.OutcomeNotStarted: {409, "not_started"},
		models.OutcomeNotReleased: {409, "not_released"}, models.OutcomeEnded: {409, "ended"}, models.OutcomePaused: {409, "paused"},
		models.OutcomeClosed: {409, "closed"}, models.OutcomeIdempotencyMismatch: {422, "idempotency_mismatch"},
		models.OutcomeAbsent: {503, "unavailable"}, models.OutcomeDamaged: {503, "unavailable"},
		models.OutcomeRolledBack: {503, "unavailable"}, "something new": {500, "internal"},
	} {
		fake := apitest.NewFake(apitest.Coupon("c1", 10))
		fake.OnClaim = answering(outcome, 5)
		h := apitest.NewServer(t, fake, api.Config{})
		alone := apitest.Refused(t, want.status, want.code, h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
		w := apitest.Answered(t, 200, h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"u1"}]}`)
		var batch struct {
			Results []struct {
				Status  int
				Problem apitest.Problem
			}
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &batch))
		require.Equal(t, want.status, batch.Results[0].Status)
		require.Equal(t, alone, batch.Results[0].Problem, "a batch refuses in the same words")
	}
}

func answering(outcome models.Outcome, remaining int64) func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	return func(_ context.Context, _ lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		replies := make([]lua.ClaimReply, len(reqs))
		for i := range replies {
			replies[i].Outcome = outcome
		}
		return replies, remaining, nil
	}
}

func failing(err error) func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	return func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		return nil, 0, err
	}
}

func TestClaim_OnlyWhatSurelyDidNotHappenIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"redis away":     {fmt.Errorf("%w: dial", lua.ErrUnavailable), "unavailable"},
		"answer lost":    {fmt.Errorf("%w: cut", lua.ErrOutcomeUnknown), "outcome_unknown"},
		"both":           {errors.Join(lua.ErrUnavailable, lua.ErrOutcomeUnknown), "outcome_unknown"},
		"something else": {errors.New("no idea"), "outcome_unknown"},
	} {
		fake := apitest.NewFake(apitest.Coupon("c1", 10))
		fake.OnClaim = failing(c.err)
		h := apitest.NewServer(t, fake, api.Config{})
		p := apitest.Refused(t, 503, c.code, h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Idempotency-Key: k")
		require.Empty(t, p.ClaimID, "%s: the client has its key", name)
		p = apitest.Refused(t, 503, c.code, h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
		require.Equal(t, c.code == "outcome_unknown", fake.Calls[1][0].ID.String() == p.ClaimID, name)
	}
}

func TestClaim_PanickingClaimerIsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	fake.OnClaim = func(context.Context, lua.Meta, []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) { panic("oh") }
	h := apitest.NewServer(t, fake, api.Config{})
	apitest.Refused(t, 503, "outcome_unknown", h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	fake.Mu.Lock()
	fake.OnClaim = nil
	fake.Mu.Unlock()
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code, "the combiner lives on")
}

func TestClaim_UnknownCampaignIsNotRemembered(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	h := apitest.NewServer(t, fake, api.Config{})
	apitest.Refused(t, 404, "campaign_not_found", h, "POST", "/v1/campaigns/new/claims", apitest.OneClaim)
	fake.Put(apitest.Coupon("new", 1))
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/new/claims", apitest.OneClaim).Code, "created in the meantime, brought to Redis by the claim")
	require.Equal(t, 2, fake.Loads)
}

func TestClaim_CampaignGoneFromRedisIsBroughtBackOnce(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	fake.Campaigns["c1"].InRedis = false
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	require.Equal(t, 1, fake.Loads)

	fake.Campaigns["c1"].InRedis = false
	fake.Fail = errors.New("lost: it was loaded before")
	now.Advance(time.Second)
	for range 5 {
		apitest.Refused(t, 503, "unavailable", h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	}
	require.Equal(t, 2, fake.Loads, "MySQL is not asked for every call")
}

func TestClaim_MySQLAwayDoesNotStopClaims(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	fake.Fail = errors.New("mysql is away")
	h := apitest.NewServer(t, fake, api.Config{})
	apitest.Answered(t, 201, h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	apitest.Refused(t, 503, "unavailable", h, "GET", "/v1/campaigns/c1/stock", "")
	apitest.Refused(t, 503, "unavailable", h, "POST", "/v1/campaigns/not-in-redis/claims", apitest.OneClaim)
}

func TestBatch_EachClaimOnItsOwnInOrder(t *testing.T) {
	t.Parallel()
	one := apitest.Coupon("c1", 10)
	one.PerUser = 1
	fake := apitest.NewFake(one, apitest.Coupon("c2", 1))
	h := apitest.NewServer(t, fake, api.Config{})
	body := `{"claims":[
		{"campaign_id":"c1","user_id":"a","idempotency_key":"k1"},
		{"campaign_id":"c2","user_id":"a"},
		{"campaign_id":"c1","user_id":"a"},
		{"campaign_id":"none","user_id":"a"},
		{"campaign_id":"c1","user_id":"b","what":{"deep":[1,{}]}},
		7,
		{"campaign_id":"c2","user_id":"b"},
		{"campaign_id":"c1","user_id":"a","idempotency_key":"k1"},
		{"campaign_id":"c1","user_id":"c"}]}`
	w := apitest.Answered(t, 200, h, "POST", "/v1/claims:batch", body)
	var got struct {
		Results []struct {
			Status  int
			Claim   *models.Claim
			Problem *apitest.Problem
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	var line []string
	for _, r := range got.Results {
		if r.Claim != nil {
			line = append(line, fmt.Sprint(r.Status, " ", r.Claim.CampaignID, r.Claim.UserID, r.Claim.Seq))
		} else {
			line = append(line, fmt.Sprint(r.Status, " ", r.Problem.Code, " ", r.Problem.Field))
		}
	}
	require.Equal(t, []string{
		"201 c1a1", "201 c2a1", "409 user_limit ", "404 campaign_not_found ", "422 invalid what",
		"422 invalid claims[5]", "409 sold_out ", "201 c1a1", "201 c1c2",
	}, line)
	require.Empty(t, w.Header().Get("Idempotent-Replayed"), "not all are replays")
	require.Len(t, fake.Calls, 2, "one call a campaign")
}

// The replays are named in a header because a replayed body is byte
// for byte the first one.
func TestBatch_SaysWhichClaimsAreReplays(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 1000)), api.Config{})
	apitest.Answered(t, 201, h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u1"}`, "Idempotency-Key: k1")
	batch := func(claims ...string) http.Header {
		w := apitest.Answered(t, 200, h, "POST", "/v1/claims:batch", `{"claims":[`+strings.Join(claims, ",")+`]}`)
		return w.Header()
	}
	// A key of the whole batch would be ignored, so a retry would claim twice.
	one := `{"claims":[{"campaign_id":"c1","user_id":"u1"}]}`
	p := apitest.Refused(t, 422, "invalid", h, "POST", "/v1/claims:batch", one, "Idempotency-Key: k")
	require.Equal(t, "Idempotency-Key", p.Field)
	again, fresh := `{"campaign_id":"c1","user_id":"u1","idempotency_key":"k1"}`, `{"campaign_id":"c1","user_id":"u2"}`
	mixed := batch(fresh, again, `{"campaign_id":"none","user_id":"u"}`, again)
	require.Equal(t, "0101", mixed.Get("Idempotent-Replayed-Claims"))
	require.Empty(t, mixed.Get("Idempotent-Replayed"))
	all := batch(again, again)
	require.Empty(t, all.Get("Idempotent-Replayed-Claims"))
	require.Equal(t, "true", all.Get("Idempotent-Replayed"))
	require.Empty(t, batch(fresh).Get("Idempotent-Replayed-Claims"))
}

// A batch has one status and no Retry-After, so each claim carries its own.
func TestBatch_SaysWhenToAskAgain(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake(apitest.Coupon("c1", 1), apitest.Coupon("c2", 1))
	fake.OnClaim = func(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		if m.ID == "c2" {
			return nil, 0, lua.ErrOutcomeUnknown
		}
		return answering(models.OutcomeDamaged, 0)(ctx, m, reqs)
	}
	h := apitest.NewServer(t, fake, api.Config{UserRate: 0.4, Clock: now.Now})
	w := apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"a"},{"campaign_id":"c1","user_id":"a"},
		{"campaign_id":"c2","user_id":"b"},{"campaign_id":"c2","user_id":"c","idempotency_key":"k"},{"campaign_id":"none","user_id":"d"}]}`)
	require.Equal(t, 200, w.Code)
	var got struct {
		Results []struct{ Problem apitest.Problem }
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body)
	var line []string
	for _, r := range got.Results {
		line = append(line, fmt.Sprint(r.Problem.Code, " ", r.Problem.RetryAfterMs))
	}
	require.Equal(t, []string{"unavailable 1000", "rate_limited 3000", "outcome_unknown 1000", "outcome_unknown 1000", "campaign_not_found 0"}, line)
}

func TestUserRate_RefusesWhoAsksTooOften(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake(apitest.Coupon("c1", 100))
	h := apitest.NewServer(t, fake, api.Config{UserRate: 0.5, Clock: now.Now})
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	apitest.RequireProblem(t, 429, w.Header(), w.Body.Bytes(), "rate_limited")
	require.Equal(t, []string{"2", `"user";q=1;w=2`, `"user";r=0;t=2`},
		[]string{w.Header().Get("Retry-After"), w.Header().Get("Ratelimit-Policy"), w.Header().Get("Ratelimit")})
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u2"}`).Code, "others are not held up")
	w = apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"u1"}]}`)
	require.Contains(t, w.Body.String(), `"status":429`)
	now.Advance(2 * time.Second)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	require.Equal(t, 3, fake.Sent())
}
