package claiming_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/api/workers"
	"dibs/internal/apitest"
)

func TestCampaignsInMemory_AreBounded(t *testing.T) {
	t.Parallel()
	now := &apitest.Clock{At: apitest.Now}
	room := apitest.NewRoom()
	for i := range 20 {
		room.Put(apitest.Coupon(fmt.Sprint("c", i), 100)).InRedis = true
	}
	s, err := claiming.New(claiming.Config{
		Claimer: room, States: room, Hydrator: room, Campaigns: room, Workers: &workers.Group{}, ClaimsPerCall: 1, ClaimsInFlight: 1,
		QueueWait: time.Minute, CallTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Clock: now.Now,
	})
	require.NoError(t, err)
	s.KeepInMemory(8, time.Minute)
	h := http.NewServeMux()
	h.HandleFunc("POST "+claiming.Path, func(w http.ResponseWriter, r *http.Request) { s.PostClaim(w, r) })
	claim := func(i int) {
		now.Add(time.Millisecond)
		w := apitest.Ask(h, "POST", fmt.Sprintf("/v1/campaigns/c%d/claims", i), apitest.OneClaim)
		require.Equal(t, 201, w.Code, w.Body)
	}
	for i := range 20 {
		claim(i)
		claim(0)
		require.LessOrEqual(t, s.Campaigns(), 8)
	}
	asked := room.StateReads
	claim(0)
	require.Equal(t, asked, room.StateReads, "the one in use stayed")
	now.Add(2 * time.Minute)
	claim(1)
	require.Equal(t, 1, s.Campaigns(), "the idle ones left")
}
