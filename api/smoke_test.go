package api_test

import (
	"testing"

	"dibs/api"
)

func TestSmoke(t *testing.T) {
	room := newRoom(coupon("c1", 2))
	h := newServer(t, room, api.Config{})
	for _, q := range [][]string{
		{"POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":5}`},
		{"POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":5}`},
		{"POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":6}`},
		{"GET", "/v1/campaigns", ``}, {"GET", "/v1/campaigns?limit=1", ``}, {"GET", "/v1/campaigns?limit=zz", ``},
		{"GET", "/v1/campaigns/x", ``}, {"PATCH", "/v1/campaigns/x", `{"total":7,"foo":1}`}, {"PATCH", "/v1/campaigns/x", `{"total":7}`},
		{"GET", "/v1/campaigns/x/stock", ``},
		{"POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`}, {"POST", "/v1/campaigns/c1/claims", `{"user_id":"u","quantity":2}`},
		{"POST", "/v1/campaigns/x/close", ``}, {"POST", "/v1/campaigns/x/claims", `{"user_id":"u"}`},
		{"POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"a"},{"campaign_id":"c1","user_id":"b"},{"campaign_id":"no","user_id":"b"},{"campaign_id":"c1"}]}`},
		{"POST", "/v1/campaigns/c1/claims", `{"user_id":"u"}`}, {"POST", "/v1/campaigns", ``},
		{"DELETE", "/v1/campaigns/c1", ``}, {"GET", "/v2", ``}, {"POST", "/v1/campaigns/c1/packets", `{}`}, {"GET", "/healthz", ``}, {"GET", "/openapi.json", ``}, {"GET", "/metrics", ""},
	} {
		w := ask(h, q[0], q[1], q[2])
		t.Log(q[0], q[1], q[2], "→", w.Code, w.Header(), w.Body.String())
	}
}
