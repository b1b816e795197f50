package cmd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// An event of every documented type must match its schema.
func TestEventsInTheStreamAreAsTheServedDocumentSays(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	var doc struct {
		Components struct {
			Schemas  map[string]*openapi3.Schema `json:"schemas"`
			Messages map[string]struct {
				Name    string            `json:"name"`
				Payload map[string]string `json:"payload"`
			} `json:"messages"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal([]byte(serve.get("/asyncapi.json").body), &doc))
	missing := map[string]*openapi3.Schema{}
	for _, m := range doc.Components.Messages {
		missing[m.Name] = doc.Components.Schemas[strings.TrimPrefix(m.Payload["$ref"], "#/components/schemas/")]
	}
	schemas := maps.Clone(missing)
	for _, ofALoss := range []string{"claims.given_up", "claims.dropped", "lot.resumed", "partition.generation", "lot.evicted"} {
		delete(missing, ofALoss) // or of what idles for long
	}
	require.NoError(t, s.rdb.XGroupCreateMkStream(t.Context(), "dibs:{p0}:claims", "reader", "0").Err(), "so that nothing is trimmed")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":3,"low_stock_at":1,"hold_for":"1h"}`)
	var ids []string
	for i := range 3 {
		got := serve.post("/campaigns/spring/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i), fmt.Sprint("Idempotency-Key: k", i))
		var claim struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(got.body), &claim))
		ids = append(ids, claim.ID)
	}
	serve.synced("spring", 3)
	serve.post("/claims/"+ids[0]+"/redeem", `{"order_id":"o"}`)
	serve.post("/claims/"+ids[0]+"/reopen", `{"order_id":"o","reason":"refunded"}`)
	serve.post("/claims/"+ids[0]+"/extend", `{"by":"1m"}`, "Idempotency-Key: e")
	serve.post("/claims/"+ids[1]+"/release", ``)
	serve.post("/campaigns:pause", ``)
	serve.post("/campaigns", `{"id":"gala","kind":"packet","currency":"CNY","sender_id":"host"}`)
	serve.post("/campaigns/gala/packets", `{"packets":[{"id":"a","amount":8888},{"id":"b","amount":1}]}`)
	serve.post("/campaigns/gala/claims", `{"user_id":"ada"}`)
	serve.post("/campaigns", `{"id":"wide","kind":"coupon","total":8,"shards":2}`)
	require.Eventually(t, func() bool { // more than a shard has at first
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns/wide/claims", `{"user_id":"w","quantity":6}`, "Idempotency-Key: w")
		return got.status == http.StatusCreated
	}, within, 20*time.Millisecond)
	serve.post("/campaigns", `{"id":"fresh","kind":"coupon","total":9}`)
	require.Eventually(t, func() bool { // in Redis, with no claim
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns/fresh/claims", `{"user_id":"w","quantity":10}`, "Idempotency-Key: w")
		return got.code() == "sold_out"
	}, within, 20*time.Millisecond)
	got := call(t, http.MethodPatch, serve.url+"/v1/campaigns/fresh", `{"low_stock_at":9}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	serve.post("/campaigns", `{"id":"unused","kind":"coupon","total":1}`)
	require.Equal(t, http.StatusNoContent, call(t, http.MethodDelete, serve.url+"/v1/campaigns/unused", "").status)
	serve.post("/campaigns/spring/close", ``)
	serve.post("/campaigns/gala/close", ``)
	from := "-"
	require.Eventually(t, func() bool {
		entries, err := s.rdb.XRange(t.Context(), "dibs:{p0}:claims", from, "+").Result()
		require.NoError(t, err)
		for _, entry := range entries {
			from = "(" + entry.ID
			var event map[string]any
			require.NoError(t, json.Unmarshal([]byte(fmt.Sprint(entry.Values["payload"])), &event))
			schema := schemas[fmt.Sprint(event["type"])]
			require.NotNil(t, schema, "%v", event)
			closed := *schema
			closed.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
			require.NoError(t, closed.VisitJSON(event), "%v", event)
			delete(missing, fmt.Sprint(event["type"]))
		}
		return len(missing) == 0
	}, within, 20*time.Millisecond, "%v", missing)
}
