package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
)

func TestCampaignsInMemory_AreBounded(t *testing.T) {
	t.Parallel()
	now := &clock{now: fakeNow}
	room := newRoom()
	for i := range 20 {
		room.put(coupon(fmt.Sprint("c", i), 100)).inRedis = true
	}
	s, err := api.NewClaimRoutes(api.ClaimingConfig{
		Claimer: room, States: room, Hydrator: room, Campaigns: room, Workers: api.NewCrew(), CampaignsMax: 8, CampaignIdle: time.Minute,
		ClaimsPerCall: 1, ClaimsInFlight: 1, QueueMax: 1, QueueWait: time.Minute, CallTimeout: time.Minute, LookupTimeout: time.Minute, LookupsMax: 1,
		SoldOutFor: time.Minute, UsersMax: 1, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Clock: now.Now,
	})
	require.NoError(t, err)
	h := http.NewServeMux()
	h.HandleFunc(claimPattern, func(w http.ResponseWriter, r *http.Request) { s.PostClaim(w, r) })
	claim := func(i int) {
		now.Add(time.Millisecond)
		w := ask(h, "POST", fmt.Sprintf("/v1/campaigns/c%d/claims", i), oneClaim)
		require.Equal(t, 201, w.Code, w.Body)
	}
	for i := range 20 {
		claim(i)
		claim(0)
		require.LessOrEqual(t, s.Campaigns(), 8)
	}
	asked := room.states
	claim(0)
	require.Equal(t, asked, room.states, "the one in use stayed")
	now.Add(2 * time.Minute)
	claim(1)
	require.Equal(t, 1, s.Campaigns(), "the idle ones left")
}
