package claiming_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/internal/testenv"
	"dibs/models"
)

func TestRealRedis_TwoProcessesSellExactlyWhatThereIs(t *testing.T) {
	t.Parallel()
	for calls := 1; calls <= 2; calls++ {
		t.Run(fmt.Sprint(calls, " calls at once"), func(t *testing.T) {
			t.Parallel()
			url := testenv.SharedRedis(t).URL()
			d := &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}
			cfg := api.Config{ClaimsInFlight: calls}
			servers := []http.Handler{apitest.RealServer(t, d, url, cfg), apitest.RealServer(t, d, url, cfg)}
			id := testenv.UniqueID(t, "sale")
			w := apitest.Ask(servers[0], "POST", "/v1/campaigns", `{"id":"`+id+`","kind":"coupon","total":500,"per_user":2}`)
			require.Equal(t, 201, w.Code, w.Body)
			var got [2]atomic.Int64
			var g errgroup.Group
			for i := range 200 {
				g.Go(func() error {
					for j := range 5 {
						quantity := 1 + (i+j)%2
						w := apitest.Ask(servers[(i+j)%2], "POST", "/v1/campaigns/"+id+"/claims", fmt.Sprintf(`{"user_id":"u%d","quantity":%d}`, i*3+j, quantity))
						switch w.Code {
						case 201:
							got[0].Add(int64(quantity))
						case 409:
							got[1].Add(1)
						default:
							return fmt.Errorf("%d %s", w.Code, w.Body)
						}
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
			require.EqualValues(t, 500, got[0].Load())
			require.Positive(t, got[1].Load())
			var st models.Stock
			require.NoError(t, json.Unmarshal(apitest.Ask(servers[1], "GET", "/v1/campaigns/"+id+"/stock", "").Body.Bytes(), &st))
			require.Equal(t, []int64{500, 0, 500}, []int64{st.Total, st.Remaining, st.Claimed})

			require.Equal(t, 200, apitest.Ask(servers[0], "PATCH", "/v1/campaigns/"+id, `{"total":501}`).Code)
			require.Eventually(t, func() bool {
				return apitest.Ask(servers[1], "POST", "/v1/campaigns/"+id+"/claims", `{"user_id":"restock"}`).Code == 201
			}, time.Minute, 5*time.Millisecond, "a restock by one process reaches the other")
		})
	}
}

func TestRealRedis_ReplayIsEqualFromAnotherProcess(t *testing.T) {
	t.Parallel()
	url := testenv.SharedRedis(t).URL()
	d := &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}
	servers := []http.Handler{apitest.RealServer(t, d, url, api.Config{}), apitest.RealServer(t, d, url, api.Config{})}
	id := testenv.UniqueID(t, "replay")
	require.Equal(t, 201, apitest.Ask(servers[0], "POST", "/v1/campaigns", `{"id":"`+id+`","kind":"coupon","total":1,"hold_for":"90s"}`).Code)
	var bodies [50]string
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for i := range bodies {
		wg.Go(func() {
			w := apitest.Ask(servers[i%2], "POST", "/v1/campaigns/"+id+"/claims", `{"user_id":"Zoë & <co>"}`, "Idempotency-Key: the key")
			bodies[i] = w.Body.String()
			if w.Code == 201 && w.Header().Get("Idempotent-Replayed") == "" {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fresh.Load())
	for _, body := range bodies {
		require.Equal(t, bodies[0], body)
	}
	require.Contains(t, bodies[0], "expires_at")
	batch := `{"claims":[{"campaign_id":"` + id + `","user_id":"Zoë & <co>","idempotency_key":"the key"}]}`
	require.Equal(t, `{"results":[{"status":201,"claim":`+bodies[0]+`}]}`, apitest.Ask(servers[1], "POST", "/v1/claims:batch", batch).Body.String())
}

func TestRealRedis_AnswerCutOffIsUnknownAndTheRetryGetsTheClaim(t *testing.T) {
	t.Parallel()
	redis := testenv.SharedRedis(t)
	proxy := testenv.Proxy(t, redis.Addr())
	d := &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}
	h := apitest.RealServer(t, d, "redis://"+proxy.Listen, api.Config{CallTimeout: time.Second})
	id := testenv.UniqueID(t, "cut")
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"`+id+`","kind":"coupon","total":5}`).Code)
	claim := func(key string) (int, http.Header, []byte) {
		w := apitest.Ask(h, "POST", "/v1/campaigns/"+id+"/claims", apitest.OneClaim, "Idempotency-Key: "+key)
		return w.Code, w.Header(), w.Body.Bytes()
	}
	status, _, body := claim("before")
	require.Equal(t, 201, status, "%s", body)
	_, err := proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"silence","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`))
	require.NoError(t, err)
	status, header, body := claim("lost")
	require.Equal(t, 503, status)
	apitest.RequireProblem(t, 503, header, body, "outcome_unknown")
	require.NoError(t, proxy.Toxics.RemoveToxic(t.Context(), "silence"))
	require.Eventually(t, func() bool { // it is known to hang until it is asked again
		status, header, body = claim("lost")
		return status == 201
	}, time.Minute, 10*time.Millisecond, "%s", body)
	require.Equal(t, "true", header.Get("Idempotent-Replayed"), "the script had run")

	proxy.Stop()
	require.Eventually(t, func() bool { // a connection that was just cut may still be taken for a whole one, once
		status, header, body = claim("away")
		return strings.Contains(string(body), `"unavailable"`)
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, 503, status)
	apitest.RequireProblem(t, 503, header, body, "unavailable")
	require.NoError(t, proxy.Start())
	status, header, body = claim("away")
	require.Equal(t, 201, status, "%s", body)
	require.Empty(t, header.Get("Idempotent-Replayed"), "it had surely not run")
}

func TestRealRedis_LostStateIsNeverReadAsStock(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	d := &apitest.Definitions{Fake: apitest.NewFake(), Loaded: map[string]bool{}}
	h := apitest.RealServer(t, d, redis.URL(), api.Config{})
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"lost","kind":"coupon","total":1}`).Code)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/lost/claims", apitest.OneClaim, "Idempotency-Key: k").Code)
	redis.Kill()
	w := apitest.Ask(h, "POST", "/v1/campaigns/lost/claims", apitest.OneClaim, "Idempotency-Key: k")
	require.Equal(t, 503, w.Code)
	redis.Start() // without persistence: empty
	require.Eventually(t, func() bool { return apitest.Ask(h, "GET", "/readyz", "").Code == 200 }, time.Minute, 10*time.Millisecond)
	for range 3 {
		w = apitest.Ask(h, "POST", "/v1/campaigns/lost/claims", apitest.OneClaim)
		apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
	}
	w = apitest.Ask(h, "GET", "/v1/campaigns/lost/stock", "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
}
