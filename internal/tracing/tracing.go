// Package tracing starts the spans of a claim, on
// OpenTelemetry's API: the request, work shared by many claims,
// and events from a stream. Package otlp sends them.
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

// New makes a provider's Tracer; nil for nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer("dibs")}
}

// Span is a started span. Nil is none.
type Span struct{ trace.Span }

// parents reads and writes W3C's traceparent.
type parents = propagation.TraceContext

// Request starts a request's span, as a child of the one in its header.
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

// Answered ends a request's span.
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

// Sampled returns a context's span if sampled, else nil.
func (t *Tracer) Sampled(ctx context.Context) *Span {
	if t == nil {
		return nil
	}
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsSampled() {
		return &Span{span}
	}
	return nil
}

// Shared starts a span of work done once for many. It belongs to the first
// one's trace and is linked with all, both ways. It is nil if of is empty.
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

// Received starts the span of an event from a stream with this traceparent.
func (t *Tracer) Received(ctx context.Context, name, parent string, about ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil || parent == "" {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(contextOf(ctx, parent), name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(about...))
	return ctx, &Span{span}
}

// Remote returns a traceparent's span, to link to it.
func Remote(parent string) *Span {
	return &Span{trace.SpanFromContext(contextOf(context.Background(), parent))}
}

func contextOf(ctx context.Context, parent string) context.Context {
	return parents{}.Extract(ctx, propagation.MapCarrier{traceParent: parent})
}

// Done ends a span; err is its failure.
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

// Parent returns a sampled span's traceparent, or "".
func (s *Span) Parent() string {
	if s == nil || !s.SpanContext().IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	parents{}.Inject(trace.ContextWithSpanContext(context.Background(), s.SpanContext()), carrier)
	return carrier[traceParent]
}
