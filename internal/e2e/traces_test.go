package e2e

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"dibs/api/claiming"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
)

// heldFirst holds the first script call back until gate is closed.
type heldFirst struct {
	claiming.Claimer

	first   sync.Once
	entered chan struct{}
	gate    chan struct{}
}

func (h *heldFirst) ClaimAfter(ctx context.Context, m lua.Meta, seen lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	h.first.Do(func() {
		close(h.entered)
		<-h.gate
	})
	return h.Claimer.ClaimAfter(ctx, m, seen, reqs)
}

// traced claims as someone who traces.
func traced(t *testing.T, url, campaignID, user, parent string) reply {
	t.Helper()
	follow := http.Client{Transport: withHeader{parent}}
	return callOn(t, &follow, http.MethodPost, url+"/v1/campaigns/"+campaignID+"/claims", "", map[string]any{"user_id": user})
}

// withHeader sends a traceparent along.
type withHeader struct{ parent string }

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Traceparent", w.parent)
	return client.Transport.RoundTrip(r)
}

// TestAClaimIsTracedFromItsRequestToItsFlush: claims of two sampled traces share a script call with one of none. What is traced is found
// in each trace: the request, the call with links to all that share it, the event in the stream, its consumer, and the flush with links.
func TestAClaimIsTracedFromItsRequestToItsFlush(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	held := &heldFirst{entered: make(chan struct{}), gate: make(chan struct{})}
	p := newInProcess(t, swaps{
		tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))),
		claimer: func(_ redis.UniversalClient, claimer claiming.Claimer) claiming.Claimer {
			held.Claimer = claimer
			return held
		},
	})
	p.startConsumer()
	url := p.urls[0]
	c := openCampaign(t, url, campaign{Total: 10})
	var answers [4]reply
	var asked sync.WaitGroup
	asked.Go(func() { answers[0] = claimOnce(t, url, c.ID, "first", 1, "") })
	<-held.entered
	const adas, bobs = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	asked.Go(func() { answers[1] = traced(t, url, c.ID, "ada", "00-"+adas+"-b7ad6b7169203331-01") })
	asked.Go(func() { answers[2] = traced(t, url, c.ID, "bob", "00-"+bobs+"-00f067aa0ba902b7-01") })
	asked.Go(func() {
		answers[3] = traced(t, url, c.ID, "eve", "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	})
	require.Eventually(t, func() bool { return strings.Contains(metricsOf(t, url), "dibs_claims_queued 3") }, upTimeout, pollEvery)
	close(held.gate)
	asked.Wait()
	for _, answer := range answers {
		require.Equal(t, http.StatusCreated, answer.status, answer.body)
	}
	named := func(name string) (found tracetest.SpanStubs) {
		for _, s := range spans.GetSpans() {
			if s.Name == name {
				found = append(found, s)
			}
		}
		return found
	}
	require.Eventually(t, func() bool { return len(named("syncer claim.accepted")) == 2 }, upTimeout, pollEvery)

	requests := named("POST /v1/campaigns/{id}/claims")
	require.ElementsMatch(t, []string{adas, bobs}, tracesOf(requests))
	require.Equal(t, int64(201), attributeOf(requests[0], "http.response.status_code"))
	require.NotEmpty(t, attributeOf(requests[0], "dibs.request_id"))
	calls := named("claim script")
	require.Len(t, calls, 1, "one call, one span")
	require.ElementsMatch(t, contexts(requests), links(calls[0]))
	require.Equal(t, int64(3), attributeOf(calls[0], "dibs.claims"))
	at := slices.IndexFunc(requests, func(s tracetest.SpanStub) bool { return s.SpanContext.SpanID() == calls[0].Parent.SpanID() })
	require.GreaterOrEqual(t, at, 0, "it is in the trace of one")
	require.Equal(t, []trace.SpanID{calls[0].SpanContext.SpanID()}, links(requests[1-at]), "and linked from the other")

	require.ElementsMatch(t, []string{"", "", adas, bobs}, tracesInStream(t, p.rdb))
	consumed := named("syncer claim.accepted")
	require.ElementsMatch(t, contexts(requests), parents(consumed))
	var flushed []trace.SpanID
	require.Eventually(t, func() bool {
		flushed = nil
		for _, flush := range named("flush") {
			flushed = append(flushed, links(flush)...)
			require.Contains(t, contexts(consumed), flush.Parent.SpanID())
		}
		return len(flushed) == len(consumed)
	}, upTimeout, pollEvery)
	require.ElementsMatch(t, contexts(consumed), flushed)
}

// tracesInStream are the traces of the claims in the stream, "" for an entry without metadata.
func tracesInStream(t *testing.T, rdb redis.UniversalClient) (ids []string) {
	t.Helper()
	entries, err := rdb.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(t, err)
	for _, entry := range entries {
		msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(entry.Values)
		require.NoError(t, err)
		if !strings.Contains(string(msg.Payload), string(models.EventClaimAccepted)) {
			continue
		}
		parent := msg.Metadata.Get("traceparent")
		require.Equal(t, parent == "", entry.Values["metadata"] == "")
		ids = append(ids, strings.Split(parent+"--", "-")[1])
	}
	return ids
}

func tracesOf(spans tracetest.SpanStubs) (ids []string) {
	for _, s := range spans {
		ids = append(ids, s.SpanContext.TraceID().String())
	}
	return ids
}

func contexts(spans tracetest.SpanStubs) (ids []trace.SpanID) {
	for _, s := range spans {
		ids = append(ids, s.SpanContext.SpanID())
	}
	return ids
}

func parents(spans tracetest.SpanStubs) (ids []trace.SpanID) {
	for _, s := range spans {
		ids = append(ids, s.Parent.SpanID())
	}
	return ids
}

func links(span tracetest.SpanStub) (ids []trace.SpanID) {
	for _, l := range span.Links {
		ids = append(ids, l.SpanContext.SpanID())
	}
	return ids
}

func attributeOf(span tracetest.SpanStub, key string) any {
	for _, a := range span.Attributes {
		if string(a.Key) == key {
			return a.Value.AsInterface()
		}
	}
	return nil
}

// metricsOf is /metrics of a service.
func metricsOf(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}
