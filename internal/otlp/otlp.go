// Package otlp sends spans to a collector over HTTP, as OpenTelemetry's variables (OTEL_*) say. It does so by itself because the exporter
// that comes with OpenTelemetry brings gRPC along, which it does not use.
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
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
)

// ErrConfig is wrapped by every refusal of a variable; the message names it.
var ErrConfig = errors.New("otlp: bad setting")

// sampledShare is how many of the requests without a sampled parent are traced where OTEL_TRACES_SAMPLER says nothing: at 10,000 claims a
// second some 100.
const sampledShare = 0.01

// Open makes a provider whose spans go to the collector that the environment ("NAME=value") names; nil when it names none. end sends what
// is left. The SDK reads the variables of samplers, batches and resources by itself, from the process. Errors: ErrConfig.
func Open(
	environ []string, version string, log *slog.Logger,
) (provider *sdktrace.TracerProvider, end func(context.Context) error, err error) {
	env := lookUp(environ)
	to, err := targetOf(env)
	if err != nil || to == nil {
		return nil, nil, err
	}
	sending, err := newSender(to)
	if err != nil {
		return nil, nil, err
	}
	about, err := resource.Merge(
		resource.NewSchemaless(attribute.String("service.name", "dibs"), attribute.String("service.version", version)), resource.Environment())
	if err != nil {
		return nil, nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrConfig, err)
	}
	failures := rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		failures.Do(func() {
			log.Warn("spans are lost; is the collector up?", slog.String("endpoint", to.shown), slog.Any("error", err))
		})
	}))
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithBatcher(otlptrace.NewUnstarted(sending)), sdktrace.WithResource(about),
	}
	if env("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sampledShare))))
	}
	provider = sdktrace.NewTracerProvider(options...)
	return provider, provider.Shutdown, nil
}

// lookUp finds a variable; "" is none.
func lookUp(environ []string) func(name string) string {
	values := make(map[string]string)
	for _, line := range environ {
		if name, value, _ := strings.Cut(line, "="); strings.HasPrefix(name, "OTEL_") {
			values[name] = strings.TrimSpace(value)
		}
	}
	return func(name string) string { return values[name] }
}

// target is where spans go.
type target struct {
	url     string
	shown   string // url without a password
	headers map[string]string
	timeout time.Duration
	gzip    bool
	ca      string // file; "": those of the system
}

const (
	exporter       = "OTEL_EXPORTER_OTLP_"
	forTraces      = "TRACES_"
	timeoutDefault = 10 * time.Second
)

// targetOf reads the variables of the exporter; nil when nothing is to be sent.
func targetOf(env func(string) string) (*target, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return nil, nil //nolint:nilnil // off, and no error
	}
	if kind := cmp.Or(env("OTEL_TRACES_EXPORTER"), "otlp"); kind == "none" {
		return nil, nil //nolint:nilnil // off, and no error
	} else if kind != "otlp" {
		return nil, fmt.Errorf("%w: OTEL_TRACES_EXPORTER: must be otlp or none, not %q", ErrConfig, kind)
	}
	of := func(name string) string { return cmp.Or(env(exporter+forTraces+name), env(exporter+name)) }
	to := &target{url: env(exporter + forTraces + "ENDPOINT"), timeout: timeoutDefault, ca: of("CERTIFICATE")}
	if base := env(exporter + "ENDPOINT"); to.url == "" && base != "" {
		to.url = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if to.url == "" {
		return nil, nil //nolint:nilnil // off, and no error
	}
	u, err := url.Parse(to.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: %sENDPOINT: must be an http:// or https:// URL", ErrConfig, exporter)
	}
	to.shown = u.Redacted()
	if protocol := cmp.Or(of("PROTOCOL"), "http/protobuf"); protocol != "http/protobuf" {
		return nil, fmt.Errorf("%w: %sPROTOCOL: must be http/protobuf, not %q", ErrConfig, exporter, protocol)
	}
	return to, errors.Join(to.readHeaders(of("HEADERS")), to.readTimeout(of("TIMEOUT")), to.readCompression(of("COMPRESSION")))
}

// readHeaders reads "name=value,name=value", values escaped as in URLs.
func (to *target) readHeaders(text string) error {
	to.headers = make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		name = strings.TrimSpace(name)
		if !found || name == "" || err != nil {
			return fmt.Errorf("%w: %sHEADERS: must be name=value,name=value", ErrConfig, exporter) // a value may be secret
		}
		to.headers[name] = value
	}
	return nil
}

// readTimeout reads milliseconds.
func (to *target) readTimeout(text string) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text + "ms")
	if err != nil || d <= 0 {
		return fmt.Errorf("%w: %sTIMEOUT: must be milliseconds above 0, not %q", ErrConfig, exporter, text)
	}
	to.timeout = d
	return nil
}

func (to *target) readCompression(text string) error {
	if text != "" && text != "none" && text != "gzip" {
		return fmt.Errorf("%w: %sCOMPRESSION: must be gzip or none, not %q", ErrConfig, exporter, text)
	}
	to.gzip = text == "gzip"
	return nil
}
