// Package otlp sends spans to a collector over HTTP, configured
// by OpenTelemetry's variables (OTEL_*).
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
)

// ErrConfig is wrapped by every refusal of a variable. The message names it.
var ErrConfig = errors.New("otlp: bad setting")

// sampledShare is the default share of traced requests without a
// sampled parent: some 100 of 10,000 claims a second.
const sampledShare = 0.01

// Open makes a provider that sends spans to the collector named in the
// environment ("NAME=value"), or nil if none is named. The library reads all
// other OTEL_* variables from the process. Errors: ErrConfig.
func Open(ctx context.Context, environ []string, version string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	env := lookUp(environ)
	collector, err := collectorOf(env)
	if err != nil || collector == nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(collector.String()))
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_EXPORTER_OTLP_*: %w", ErrConfig, err)
	}
	about, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", "dibs"), attribute.String("service.version", version)), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	failures := rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failures.Do(func() {
			log.Warn("spans are lost; is the collector up?",
				slog.String("endpoint", collector.Redacted()), slog.Any("error", err))
		})
	}))
	options := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if env("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sampledShare))))
	}
	return sdktrace.NewTracerProvider(options...), nil
}

// lookUp returns a function that reads variables; "" is unset.
func lookUp(environ []string) func(name string) string {
	values := make(map[string]string)
	for _, line := range environ {
		if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "OTEL_") {
			values[name] = strings.TrimSpace(value)
		}
	}
	return func(name string) string { return values[name] }
}

// collectorOf returns the collector's URL; nil if no spans are sent.
func collectorOf(env func(string) string) (*url.URL, error) {
	const exporter = "OTEL_EXPORTER_OTLP_"
	to := env(exporter + "TRACES_ENDPOINT")
	if base := env(exporter + "ENDPOINT"); to == "" && base != "" {
		to = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	kind := cmp.Or(env("OTEL_TRACES_EXPORTER"), "otlp")
	if to == "" || kind == "none" || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return nil, nil //nolint:nilnil // off, and no error
	}
	if kind != "otlp" {
		return nil, fmt.Errorf("%w: OTEL_TRACES_EXPORTER: must be otlp or none, not %q", ErrConfig, kind)
	}
	protocol := cmp.Or(env(exporter+"TRACES_PROTOCOL"), env(exporter+"PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return nil, fmt.Errorf("%w: %sPROTOCOL: must be http/protobuf, not %q", ErrConfig, exporter, protocol)
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: %sENDPOINT: must be an http:// or https:// URL", ErrConfig, exporter)
	}
	return u, nil
}
