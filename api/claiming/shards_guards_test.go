package claiming_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

// twoShards is a campaign of two shards. answer answers its claims.
// shardOf has the shard that each user's claim was sent to.
func twoShards(answer func(call int) (models.Outcome, error)) (fake *apitest.Fake, shardOf map[string]string) {
	fake = apitest.NewFake(models.Campaign{ID: "c1", Total: 2, Shards: 2})
	for i := range 2 {
		fake.Put(models.Campaign{ID: models.ShardID("c1", i+1), Total: 1, Shards: 2}).InRedis = true
	}
	shardOf = make(map[string]string)
	calls := 0
	fake.OnClaim = func(_ context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		fake.Mu.Lock()
		defer fake.Mu.Unlock()
		calls++
		replies := make([]lua.ClaimReply, len(reqs))
		outcome, err := answer(calls)
		for i := range reqs {
			shardOf[reqs[i].UserID] = m.ID
			replies[i].Outcome = outcome
		}
		return replies, 0, err
	}
	return fake, shardOf
}

// A slow proof of sold out holds from its start. Otherwise returned
// units would be hidden for as long as it took.
func TestShards_AProofLastsFromItsBegin(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake, _ := twoShards(func(int) (models.Outcome, error) { return models.OutcomeDry, nil })
	proofs := 0
	fake.OnRefill = func() (models.Refill, error) {
		proofs++
		now.Advance(lasts)
		return models.Refill{SoldOutFrom: 1}, nil
	}
	h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
	for range 3 {
		apitest.Refused(t, 409, "sold_out", h, "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`)
	}
	require.Equal(t, 3, proofs)
}

// A claim that is sent again after a refill may have been made if that
// call fails.
func TestShards_TheSecondCallMayEndUnknown(t *testing.T) {
	t.Parallel()
	fake, _ := twoShards(func(call int) (models.Outcome, error) {
		if call == 1 {
			return models.OutcomeDry, nil
		}
		return "", lua.ErrOutcomeUnknown
	})
	fake.OnRefill = func() (models.Refill, error) { return models.Refill{}, nil }
	w := apitest.Ask(apitest.NewServer(t, fake, api.Config{}), "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`)
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "outcome_unknown")
}

// If a refill fails, a dry shard must not count as sold out.
func TestShards_DryIsNotSoldOut(t *testing.T) {
	t.Parallel()
	fake, _ := twoShards(func(int) (models.Outcome, error) { return models.OutcomeDry, nil })
	fake.OnRefill = func() (models.Refill, error) { return models.Refill{}, errors.New("redis is away") }
	apitest.Refused(t, 503, "unavailable", apitest.NewServer(t, fake, api.Config{}), "POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`)
}

// Limits and keys are per shard, so a batch and a single claim must
// choose the same one.
func TestShards_ABatchFindsTheSameShards(t *testing.T) {
	t.Parallel()
	fake, shardOf := twoShards(func(int) (models.Outcome, error) { return models.OutcomePaused, nil })
	h := apitest.NewServer(t, fake, api.Config{})
	alone := make(map[string]string)
	for i := range 20 {
		body := fmt.Sprintf(`{"user_id":"user-%d"}`, i)
		require.Equal(t, 409, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", body).Code)
	}
	maps.Copy(alone, shardOf)
	require.Len(t, alone, 20)
	clear(shardOf)
	for user := range alone {
		body := fmt.Sprintf(`{"claims":[{"campaign_id":"c1","user_id":%q}]}`, user)
		require.Equal(t, 200, apitest.Ask(h, "POST", "/v1/claims:batch", body).Code)
	}
	require.Equal(t, alone, shardOf)
}

// silentShards is a Redis that doesn't answer for shards.
type silentShards struct{ *apitest.Fake }

func (s silentShards) State(ctx context.Context, id string) (lua.State, error) {
	if !models.IsShardID(id) {
		return s.Fake.State(ctx, id)
	}
	<-ctx.Done()
	return lua.State{}, lua.ErrUnavailable
}

// However many shards are away, a batch must not wait for one after another.
func TestShards_ABatchLooksThemUpAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := apitest.NewFake(models.Campaign{ID: "c1", Total: 9, Shards: 9}, apitest.Coupon("c2", 1))
		deps := fake.Deps()
		deps.States = silentShards{fake}
		server, err := api.New(api.Config{}, deps)
		require.NoError(t, err)
		claims := []string{`{"campaign_id":"c2","user_id":"u"}`}
		for i := range 100 {
			claims = append(claims, fmt.Sprintf(`{"campaign_id":"c1","user_id":"user-%d"}`, i))
		}
		started := time.Now()
		w := apitest.Answered(t, 200, apitest.AtHome(server.Handler()), "POST", "/v1/claims:batch", `{"claims":[`+strings.Join(claims, ",")+`]}`)
		require.Equal(t, 2*time.Second, time.Since(started), "one look-up")
		require.Equal(t, 1, strings.Count(w.Body.String(), `"status":201`))
		require.Equal(t, 100, strings.Count(w.Body.String(), `"code":"unavailable"`))
	})
}
