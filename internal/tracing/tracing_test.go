package tracing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"dibs/internal/tracing"
)

// Without a provider, claims must allocate nothing for traces.
func TestOffCostsNothing(t *testing.T) { //nolint:paralleltest // counts what the process allocates
	off, ctx := tracing.New(nil), t.Context()
	require.Nil(t, off)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/campaigns/c/claims", nil)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		same, request := off.Request(r, "/v1/campaigns/{id}/claims", "id")
		if same != r {
			panic("another request")
		}
		span := off.Sampled(ctx)
		_ = span.Parent()
		call := off.Shared("claim script", nil)
		call.Done(nil)
		_, received := off.Received(ctx, "syncer", "")
		received.Done(nil)
		_ = tracing.ParentIn("")
		request.Answered(201)
	}))
}

func TestASpanThatManyShareIsLinkedBothWays(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	begin := func() *tracing.Span {
		r, span := tracer.Request(httptest.NewRequest(http.MethodPost, "/x", nil), "/x", "")
		require.NotNil(t, tracer.Sampled(r.Context()))
		return span
	}
	one, two := begin(), begin()
	require.Nil(t, tracer.Shared("none", nil))
	shared := tracer.Shared("call", []*tracing.Span{one, two, tracing.Remote("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")})
	shared.Done(errors.New("redis is away"))
	one.Answered(503)
	two.Answered(201)
	ended := spans.GetSpans()
	require.Len(t, ended, 3)
	call, first, second := ended[0], ended[1], ended[2]
	require.Equal(t, first.SpanContext.SpanID(), call.Parent.SpanID())
	require.Len(t, call.Links, 3)
	require.Equal(t, second.SpanContext.SpanID(), call.Links[1].SpanContext.SpanID())
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", call.Links[2].SpanContext.TraceID().String())
	require.Empty(t, first.Links, "it is its parent")
	require.Equal(t, call.SpanContext.SpanID(), second.Links[0].SpanContext.SpanID())
	require.Equal(t, "redis is away", call.Status.Description)
	require.Equal(t, "Error", first.Status.Code.String())
	require.Equal(t, "Unset", second.Status.Code.String())
}

func TestWhatIsNotSampledGoesNoFurther(t *testing.T) {
	t.Parallel()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())))
	r, span := tracer.Request(httptest.NewRequest(http.MethodPost, "/x", nil), "/x", "")
	require.Nil(t, tracer.Sampled(r.Context()))
	require.Empty(t, span.Parent())
	require.Nil(t, tracer.Sampled(context.Background()))
}
