// Package tracing starts the spans of a claim's way, on OpenTelemetry's API:
// the request, work that many claims share, and events that come over a stream.
// Who sends spans, and where, is package otlp's business.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans. Nil starts none, and allocates nothing.
type Tracer struct{ tracer trace.Tracer }

// New is the Tracer of a provider; nil for nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer("dibs")}
}

// Span is a span that was started. Nil is none.
type Span struct{ trace.Span }

// parents reads and writes W3C's traceparent.
type parents = propagation.TraceContext

// Request starts the span of a request, below the one that its header names.
func (t *Tracer) Request(r *http.Request, route, requestID string) (*http.Request, *Span) {
	if t == nil {
		return r, nil
	}
	ctx := parents{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route),
		attribute.String("url.path", r.URL.Path), attribute.String("dibs.request_id", requestID)))
	return r.WithContext(ctx), &Span{span}
}

// Answered ends the span of a request.
func (s *Span) Answered(status int) {
	if s == nil {
		return
	}
	s.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}

// Sampled is the span of a context, if it is sampled; else nil.
func (t *Tracer) Sampled(ctx context.Context) *Span {
	if t == nil {
		return nil
	}
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsSampled() {
		return &Span{span}
	}
	return nil
}

// Shared starts a span of work that is done once for many. It is in the trace
// of the first, and linked to all, as they are to it; nil when there are none.
func (t *Tracer) Shared(name string, of []*Span, about ...attribute.KeyValue) *Span {
	if t == nil || len(of) == 0 {
		return nil
	}
	links := make([]trace.Link, len(of))
	for i, s := range of {
		links[i].SpanContext = s.SpanContext()
	}
	ctx := trace.ContextWithSpanContext(context.Background(), links[0].SpanContext)
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...), trace.WithAttributes(about...))
	for _, s := range of[1:] {
		s.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return &Span{span}
}

// Received starts the span of an event that came over a stream with this
// traceparent.
func (t *Tracer) Received(ctx context.Context, name, parent string, about ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil || parent == "" {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(contextOf(ctx, parent), name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(about...))
	return ctx, &Span{span}
}

// Remote is the span that a traceparent names, to link to it.
func Remote(parent string) *Span {
	return &Span{trace.SpanFromContext(contextOf(context.Background(), parent))}
}

func contextOf(ctx context.Context, parent string) context.Context {
	return parents{}.Extract(ctx, propagation.MapCarrier{traceParent: parent})
}

// Done ends a span; err is why it failed.
func (s *Span) Done(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

// Parent is the traceparent of a sampled span; "" of none.
func (s *Span) Parent() string {
	if s == nil || !s.SpanContext().IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	parents{}.Inject(trace.ContextWithSpanContext(context.Background(), s.SpanContext()), carrier)
	return carrier[traceParent]
}
