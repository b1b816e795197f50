package claiming_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

const lasts = claiming.SoldOutFor

func TestSoldOut_LearnsOnlyWhatStockSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		remaining int64
		outcomes  []models.Outcome
		want      bool
	}{
		"last one taken":     {0, []models.Outcome{models.OutcomeClaimed}, true},
		"nothing left":       {0, []models.Outcome{models.OutcomeSoldOut}, true},
		"one of many":        {0, []models.Outcome{models.OutcomeReplayed, models.OutcomeSoldOut, models.OutcomeUserLimit}, true},
		"too many asked for": {1, []models.Outcome{models.OutcomeSoldOut}, false},
		"paused, total 0":    {0, []models.Outcome{models.OutcomePaused}, false},
		"a replay":           {0, []models.Outcome{models.OutcomeReplayed}, false},
	} {
		s := &claiming.SoldOut{}
		s.Learn(s.Round(), apitest.Now, c.remaining, c.outcomes...)
		require.Equal(t, c.want, s.Refuses(apitest.Now), name)
	}
	s := &claiming.SoldOut{}
	s.Learn(s.Round(), apitest.Now, 0, models.OutcomeSoldOut)
	s.Learn(s.Round(), apitest.Now, 0, models.OutcomeReplayed)
	require.True(t, s.Refuses(apitest.Now), "a replay does not undo it")
	s.Learn(s.Round(), apitest.Now, 0, models.OutcomePaused)
	require.False(t, s.Refuses(apitest.Now), "paused is another reason")
	s.Learn(s.Round(), apitest.Now, 0, models.OutcomeSoldOut)
	before := s.Round()
	s.Invalidate()
	require.False(t, s.Refuses(apitest.Now), "a failed call leaves nothing known")
	s.Learn(before, apitest.Now, 0, models.OutcomeSoldOut)
	require.False(t, s.Refuses(apitest.Now), "a call from before a change does not bring it back")
}

// A late reply holds from the start of its call. Otherwise a stall
// would hide a unit that was returned.
func TestSoldOut_LastsFromTheBeginOfTheCall(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake(apitest.Coupon("c1", 0))
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	fake.OnClaim = func(_ context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		now.Advance(lasts)
		return fake.Sums(m, reqs)
	}
	for range 3 {
		require.Equal(t, 409, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`).Code)
	}
	require.Equal(t, 3, fake.Sent(), "no one is refused on what was so that long ago")
}

func TestSoldOut_CostsTheClaimerNothingAndEndsWithARestock(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake(apitest.Coupon("c1", 1))
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	claim := func(want int, headers ...string) {
		t.Helper()
		w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`, headers...)
		require.Equal(t, want, w.Code, w.Body)
		if want == 409 {
			apitest.RequireProblem(t, 409, w.Header(), w.Body.Bytes(), "sold_out")
		}
	}
	claim(201, "Idempotency-Key: k")
	for range 10 {
		claim(409)
	}
	require.Equal(t, 1, fake.Sent(), "the crowd that came too late")
	claim(201, "Idempotency-Key: k")
	claim(409, "Idempotency-Key: k2")
	require.Equal(t, 3, fake.Sent(), "who has a key always asks")
	w := apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"x"},{"campaign_id":"c1","user_id":"x","idempotency_key":"k3"}]}`)
	require.Equal(t, 200, w.Code)
	require.Equal(t, 4, fake.Sent())

	now.Advance(lasts)
	claim(409)
	claim(409)
	require.Equal(t, 5, fake.Sent(), "one checks again")

	require.Equal(t, 200, apitest.Ask(h, "PATCH", "/v1/campaigns/c1", `{"total":2}`).Code)
	claim(201)
	claim(409)
	fake.Mu.Lock()
	fake.Campaigns["c1"].Total = 3 // by another process
	fake.Mu.Unlock()
	claim(409)
	now.Advance(lasts)
	claim(201)
	require.Equal(t, 200, apitest.Ask(h, "POST", "/v1/campaigns/c1/close", "").Code)
	apitest.Refused(t, 409, "closed", h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`)
}

// A refusal of a large claim must not refuse smaller ones.
func TestSoldOut_IsOfClaimsThatAreAsLarge(t *testing.T) {
	t.Parallel()
	fake, _ := twoShards(func(call int) (models.Outcome, error) {
		return []models.Outcome{models.OutcomeDry, models.OutcomeClaimed}[call-1], nil
	})
	fake.OnRefill = func() (models.Refill, error) { return models.Refill{SoldOutFrom: 6}, nil }
	now := clockwork.NewFakeClockAt(apitest.Now)
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	for _, c := range []struct{ quantity, status, sent int }{{6, 409, 1}, {6, 409, 1}, {7, 409, 1}, {5, 201, 2}} {
		w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u","quantity":%d}`, c.quantity))
		require.Equal(t, []int{c.status, c.sent}, []int{w.Code, fake.Sent()})
	}
}

// In a sharded campaign a crowd that is too late must not wait for a
// proof: one claim checks again while the others are refused.
func TestSoldOut_OfSeveralShardsIsProvenAnewBeforeItEnds(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	outcome, proofs := models.OutcomeDry, 0
	fake, _ := twoShards(func(int) (models.Outcome, error) { return outcome, nil })
	fake.OnRefill = func() (models.Refill, error) {
		proofs++
		return models.Refill{SoldOutFrom: 1}, nil
	}
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	refused := func(code string) {
		t.Helper()
		apitest.Refused(t, 409, code, h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`)
	}
	for range 5 {
		refused("sold_out")
	}
	require.Equal(t, []int{1, 1}, []int{proofs, fake.Sent()})
	for range 4 { // every half of its lifetime
		now.Advance(lasts / 2)
		before := proofs
		for range 5 {
			refused("sold_out")
		}
		require.Equal(t, before+1, proofs, "one claim finds out again")
		require.Equal(t, proofs, fake.Sent())
	}
	outcome = models.OutcomePaused
	now.Advance(lasts / 2)
	refused("paused")
	refused("sold_out")
	now.Advance(lasts / 2)
	refused("paused")
	refused("paused")
}
