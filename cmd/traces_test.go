package cmd_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"dibs/cmd"
)

// TestServeSendsTheTraceOfAClaim: with a collector named, each role of a whole service sends its part; what no one sampled is not there.
func TestServeSendsTheTraceOfAClaim(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := make(map[string]map[string]bool) // names of spans by trace, in hex
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var traces tracepb.TracesData
		if proto.Unmarshal(body, &traces) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range traces.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					trace := hex.EncodeToString(span.GetTraceId())
					if sent[trace] == nil {
						sent[trace] = make(map[string]bool)
					}
					sent[trace][span.GetName()] = true
				}
			}
		}
	}))
	t.Cleanup(collector.Close)
	serve := start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}, "serve")
	off := "Traceparent: 00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	serve.post("/campaigns", coupon, off)
	serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	serve.post("/campaigns/spring/claims", `{"user_id":"bob"}`, off)
	serve.synced("spring", 2)
	acked := `dibs_consumer_acked_total{group="finance",partition="0"} `
	eventually(t, "finance does not read along", func() bool {
		_, n, _ := strings.Cut(serve.get("/metrics").body, acked)
		return n != "" && n[0] >= '2'
	})
	got := serve.stop()
	require.Equal(t, cmd.ExitOK, got.code, got.stderr)
	mu.Lock()
	defer mu.Unlock()
	// One in a hundred requests without a trace of their own is sampled, such as those that wait for the syncer: other traces may be there.
	require.Equal(t, map[string]bool{"POST /v1/campaigns/{id}/claims": true, "claim script": true, "syncer claim.accepted": true, "flush": true, "finance claim.accepted": true}, sent["0af7651916cd43dd8448eb211c80319c"])
	require.NotContains(t, sent, "5bf92f3577b34da6a3ce929d0e0e4736")
}

func TestTracesThatCannotBeSentAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	got := run(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "serve")
	require.Equal(t, cmd.ExitUsage, got.code)
	require.Contains(t, got.stderr, "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf")
}
