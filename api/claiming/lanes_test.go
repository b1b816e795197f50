package claiming_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

func TestCampaignsInMemory_AreBounded(t *testing.T) {
	t.Parallel()
	now := clockwork.NewFakeClockAt(apitest.Now)
	fake := apitest.NewFake()
	for i := range 20 {
		fake.Put(apitest.Coupon(fmt.Sprint("c", i), 100)).InRedis = true
	}
	s, h, _ := routes(fake, now.Now)
	s.KeepInMemory(8, time.Minute)
	claim := func(i int) {
		now.Advance(time.Millisecond)
		apitest.Answered(t, 201, h, "POST", fmt.Sprintf("/v1/campaigns/c%d/claims", i), apitest.OneClaim)
	}
	for i := range 20 {
		claim(i)
		claim(0)
		require.LessOrEqual(t, s.Campaigns(), 8)
	}
	asked := fake.StateReads
	claim(0)
	require.Equal(t, asked, fake.StateReads, "the one in use stayed")
	now.Advance(2 * time.Minute)
	claim(1)
	require.Equal(t, 1, s.Campaigns(), "the idle ones left")
}

type slowStates struct {
	*apitest.Fake

	asked atomic.Int64
	now   atomic.Int64
	most  atomic.Int64
	gate  chan struct{}
}

func (s *slowStates) State(ctx context.Context, id string) (lua.State, error) {
	s.asked.Add(1)
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	select {
	case <-s.gate:
		return s.Fake.State(ctx, id)
	case <-ctx.Done():
		return lua.State{}, ctx.Err()
	}
}

func slowServer(t *testing.T, campaigns int) (*slowStates, http.Handler) {
	t.Helper()
	s := &slowStates{Fake: apitest.NewFake(), gate: make(chan struct{})}
	for i := range campaigns {
		s.Put(apitest.Coupon(fmt.Sprint("c", i), 1000)).InRedis = true
	}
	deps := s.Deps()
	deps.States = s
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	return s, apitest.AtHome(server.Handler())
}

func TestLanes_LookUpsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const campaigns = 3 * claiming.LookupsMax
		s, h := slowServer(t, campaigns)
		var wg sync.WaitGroup
		var codes [campaigns]int
		for i := range codes {
			wg.Go(func() {
				codes[i] = apitest.Ask(h, "POST", fmt.Sprintf("/v1/campaigns/c%d/claims", i), apitest.OneClaim).Code
			})
		}
		synctest.Wait()
		require.EqualValues(t, claiming.LookupsMax, s.now.Load())
		close(s.gate)
		wg.Wait()
		for _, code := range codes {
			require.Equal(t, 201, code)
		}
		require.EqualValues(t, claiming.LookupsMax, s.most.Load())
	})
}

// A caller that leaves must not cancel the look-up for the others.
func TestLanes_WhoLeavesALookUpLeavesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := slowServer(t, 1)
		ctx, leave := context.WithCancel(t.Context())
		left := httptest.NewRecorder()
		var stayed *httptest.ResponseRecorder
		var wg sync.WaitGroup
		wg.Go(func() {
			h.ServeHTTP(left, httptest.NewRequestWithContext(ctx, "POST", "/v1/campaigns/c0/claims", strings.NewReader(apitest.OneClaim)))
		})
		synctest.Wait()
		wg.Go(func() { stayed = apitest.Ask(h, "POST", "/v1/campaigns/c0/claims", apitest.OneClaim) })
		synctest.Wait()
		leave()
		synctest.Wait()
		apitest.RequireProblem(t, 503, left.Header(), left.Body.Bytes(), "unavailable")
		close(s.gate)
		wg.Wait()
		require.Equal(t, 201, stayed.Code)
		require.EqualValues(t, 1, s.asked.Load())
		require.Equal(t, 1, s.Sent())
	})
}

// A campaign that never had claims may be deleted, by another process, and
// its id be given to a different one.
func TestLanes_ADeletedCampaignIsForgotten(t *testing.T) {
	t.Parallel()
	paused := models.Campaign{ID: "c1", Total: 9, Status: models.StatusPaused}
	sharded := paused
	sharded.Shards = 2
	for _, was := range []models.Campaign{paused, sharded} {
		now := clockwork.NewFakeClockAt(apitest.Now)
		fake := apitest.NewFake()
		made := func(c models.Campaign) {
			fake.Put(c).InRedis = c.Shards < 2
			for i := range c.Shards {
				c.ID = models.ShardID("c1", i+1)
				fake.Put(c).InRedis = true
			}
		}
		made(was)
		h := apitest.NewServer(t, fake, api.Config{Clock: now.Now})
		claim := func() string {
			now.Advance(time.Second)
			w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
			return regexp.MustCompile(`"code":"(\w+)"|"seq":1`).FindString(w.Body.String())
		}
		require.Contains(t, claim(), "paused")
		clear(fake.Campaigns)
		if was.Shards > 1 { // whether the campaign has other shards now is not known yet
			require.Contains(t, claim(), "unavailable")
		}
		require.Contains(t, claim(), "campaign_not_found")
		made(was)
		require.Contains(t, claim(), "paused")
		clear(fake.Campaigns)
		fake.Put(models.Campaign{ID: "c1", Total: 9}).CreatedAt = apitest.Now.Add(time.Minute) // Redis doesn't hold it yet
		require.Contains(t, claim(), "unavailable")
		require.Equal(t, `"seq":1`, claim())
	}
}

// Damage to the campaign causes a reload. Damage to one user's record
// affects only that user.
func TestLanes_DamageOfOneUserIsNotTheCampaigns(t *testing.T) {
	t.Parallel()
	for remaining, loads := range map[int64]int{0: 1, 7: 0} { // without units the whole campaign is damaged
		fake := apitest.NewFake(apitest.Coupon("c1", 9))
		fake.OnClaim = answering(models.OutcomeDamaged, remaining)
		h := apitest.NewServer(t, fake, api.Config{})
		apitest.Refused(t, 503, "unavailable", h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
		require.Equal(t, loads, fake.Loads)
		require.Equal(t, 1+loads, fake.Sent(), "what was loaded again is asked again, once")
	}
}
