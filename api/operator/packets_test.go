package operator_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/api"
	"dibs/api/operator"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

func packetRoom() *apitest.Fake {
	return apitest.NewFake(models.Campaign{ID: "p", Kind: models.KindPacket, PerUser: 1})
}

func TestPackets_AreHandedOnAsTheyWereSent(t *testing.T) {
	t.Parallel()
	fake := packetRoom()
	h := apitest.NewServer(t, fake, api.Config{})
	w := apitest.Ask(h, "POST", "/v1/campaigns/p/packets", `{ "release_at": "2027-01-01T00:00:00Z", "packets": [ {"id":"a.1","amount":5}, {"amount":999999999999994,"id":"\u0062"} ] }`)
	require.Equal(t, 201, w.Code, w.Body)
	require.Equal(t, `{"count":7,"amount":77}`, w.Body.String())
	w = apitest.Answered(t, 201, h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k1")
	require.Empty(t, w.Header().Get("Idempotent-Replayed"))
	w = apitest.Answered(t, 200, h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k1")
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	require.Equal(t, 3, fake.Loads, "redis is loaded at once")

	got := fake.Campaigns["p"].Batches
	require.Len(t, got, 2)
	require.Equal(t, []models.Packet{{ID: "a.1", Amount: 5}, {ID: "b", Amount: 999999999999994}}, got[0].List)
	require.Nil(t, got[0].Split)
	require.Equal(t, "2027-01-01T00:00:00.000Z", got[0].ReleaseAt.Format(models.TimeLayout))
	require.Nil(t, got[1].List)
	require.Equal(t, models.Split{Count: 3, Amount: 10, Method: "double_mean", Min: 1, Max: 8}, *got[1].Split)
	require.Equal(t, "2027-01-01T00:00:00.123Z", got[1].ReleaseAt.Format(models.TimeLayout))
	require.Equal(t, "k1", got[1].Key)
}

// Few lists may be in memory at once. Other requests must wait, but not
// forever.
func TestPackets_WaitTheirTurn(t *testing.T) {
	t.Parallel()
	fake := packetRoom()
	h := apitest.NewServer(t, fake, api.Config{})
	var g errgroup.Group
	for range 12 {
		g.Go(func() error {
			if w := apitest.Ask(h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k1"); w.Code/100 != 2 {
				return fmt.Errorf("%d %s", w.Code, w.Body)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, fake.Campaigns["p"].Batches, 1)

	h = packetServer(fake, time.Millisecond)
	body, sends := io.Pipe()
	var slow errgroup.Group
	for range operator.PacketPostsMax { // occupy all slots
		slow.Go(func() error {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/campaigns/p/packets", body))
			return nil
		})
	}
	require.Eventually(t, func() bool {
		w := apitest.Ask(h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k2")
		return w.Code == 503 && strings.Contains(w.Body.String(), "Other packets are being stored")
	}, time.Minute, time.Millisecond)
	require.NoError(t, sends.Close())
	require.NoError(t, slow.Wait())
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k3").Code)
}

// packetServer answers requests for packets. They wait this long for others.
func packetServer(fake *apitest.Fake, wait time.Duration) http.Handler {
	routes := operator.New(operator.Config{
		Campaigns: fake, State: fake.State, Load: fake.Load, Changed: func(string) {}, Logger: slog.New(slog.DiscardHandler),
	})
	routes.WaitForPosts(wait)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/campaigns/{id}/packets", func(w http.ResponseWriter, r *http.Request) { routes.PostPackets(w, r) })
	return mux
}

func TestPackets_RefusalsNameTheField(t *testing.T) {
	t.Parallel()
	fake := packetRoom()
	h := apitest.NewServer(t, fake, api.Config{})
	for body, field := range map[string]string{
		`{}`:             "count",
		`{"packets":[]}`: "packets", `{"packets":[7]}`: "packets[0]", `{"packets":[{"id":"a"}]}`: "packets[0].amount",
		`{"packets":[{"id":"a","amount":1},{"id":"b","amount":0}]}`:               "packets[1].amount",
		`{"packets":[{"id":"_00000001","amount":1}]}`:                             "packets[0].id",
		`{"packets":[{"id":"a","amount":1,"color":"red"}]}`:                       "packets[0].color",
		`{"packets":[{"id":"a","amount":1},{"id":"a","amount":2}]}`:               "packets[1].id",
		`{"packets":[{"id":"a","amount":999999999999999},{"id":"b","amount":1}]}`: "packets[1].amount",
		`{"packets":[{"id":"a","amount":1}],"count":1}`:                           "count",
		`{"count":1,"split":"even"}`:                                              "amount",
		`{"count":1,"amount":1}`:                                                  "split",
		`{"count":1,"amount":1,"split":"even"}`:                                   "Idempotency-Key",
	} {
		require.Equal(t, field, apitest.Refused(t, 422, "invalid", h, "POST", "/v1/campaigns/p/packets", body).Field, body)
	}
	apitest.Refused(t, 400, "malformed", h, "POST", "/v1/campaigns/p/packets", `{"packets":[{"id":"a","amount":1}`)
	apitest.Refused(t, 413, "too_large", h, "POST", "/v1/campaigns/p/packets", `{"packets":["`+strings.Repeat(" ", 16<<20)+`"]}`)
	apitest.Refused(t, 404, "campaign_not_found", h, "POST", "/v1/campaigns/none/packets", apitest.ASplit, "Idempotency-Key: k2")
	require.Empty(t, fake.Campaigns["p"].Batches)
	require.Zero(t, fake.Loads)
}

// The longest list with the longest ids and amounts must fit. One more
// packet must not.
func TestPackets_TheLongestListFits(t *testing.T) {
	t.Parallel()
	fake := packetRoom()
	h := apitest.NewServer(t, fake, api.Config{})
	var list strings.Builder
	for i := range models.PacketListMax {
		_, _ = fmt.Fprintf(&list, `, { "id": "%064d", "amount": 000000000000001 }`, i)
	}
	body := strings.ReplaceAll(`{"packets":[`+list.String()[2:]+`]}`, " 000000000000001 ", "              1 ")
	require.Less(t, len(body), operator.PacketsBodyMax)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/p/packets", body).Code)
	require.Len(t, fake.Campaigns["p"].Batches[0].List, models.PacketListMax)
	w := apitest.Ask(h, "POST", "/v1/campaigns/p/packets", strings.Replace(body, `]}`, `,{"id":"one","amount":1}]}`, 1))
	require.Equal(t, "packets", apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)
}

func TestPackets_WhatIsStoredIsAnsweredThoughRedisIsAway(t *testing.T) {
	t.Parallel()
	fake := packetRoom()
	h := apitest.NewServer(t, fake, api.Config{})
	fake.LoadFails = http.ErrServerClosed
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/p/packets", apitest.ASplit, "Idempotency-Key: k2").Code)
	require.Equal(t, 1, fake.Loads)
}
