package otlp_test

import (
	"compress/gzip"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"dibs/internal/otlp"
)

type posted struct {
	path   string
	header http.Header
	spans  *tracepb.TracesData
}

func collect(t *testing.T, status int) (*httptest.Server, chan posted) {
	t.Helper()
	got := make(chan posted, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		text, _ := io.ReadAll(body)
		p := posted{r.URL.Path, r.Header, &tracepb.TracesData{}}
		if proto.Unmarshal(text, p.spans) == nil {
			got <- p
		}
		http.Error(w, "the answer", status)
	})
	server := httptest.NewUnstartedServer(handler)
	t.Cleanup(server.Close)
	return server, got
}

// send makes a span with these settings and returns the log.
func send(t *testing.T, environ ...string) string {
	t.Helper()
	var log strings.Builder
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
	provider, err := otlp.Open(t.Context(), environ, "v1", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	_, span := provider.Tracer("dibs").Start(trace.ContextWithSpanContext(t.Context(), parent), "claim script")
	span.End()
	_ = provider.Shutdown(t.Context())
	return log.String()
}

// Not parallel: OpenTelemetry has one global error handler.
func TestSpansReachACollector(t *testing.T) { //nolint:paralleltest // see above
	server, got := collect(t, http.StatusOK)
	server.Start()
	require.Empty(t, send(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL+"/", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b, y=2"))
	p := <-got
	require.Equal(t, "/v1/traces", p.path)
	require.Equal(t, "application/x-protobuf", p.header.Get("Content-Type"))
	require.Equal(t, []string{"a b", "2"}, []string{p.header.Get("X-Key"), p.header.Get("Y")})
	span := p.spans.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	require.Equal(t, "claim script", span.GetName())
	require.Contains(t, p.spans.GetResourceSpans()[0].GetResource().String(), `"service.name"`)

	require.Empty(t, send(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+server.URL+"/here", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip"))
	p = <-got
	require.Equal(t, "/here", p.path)
	require.Equal(t, "claim script", p.spans.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
}

func TestACollectorOfAPrivateAuthority(t *testing.T) { //nolint:paralleltest // see above
	server, got := collect(t, http.StatusOK)
	server.StartTLS()
	require.Contains(t, send(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL), "certificate", "not trusted by default")
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pemOf(server), 0o600))
	require.Empty(t, send(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE="+file))
	require.NotEmpty(t, (<-got).spans.GetResourceSpans())
}

func TestSpansThatAreLostAreSaidWithoutSecrets(t *testing.T) { //nolint:paralleltest // see above
	server, _ := collect(t, http.StatusBadRequest)
	server.Start()
	address := strings.Replace(server.URL, "http://", "http://me:hunter2@", 1)
	said := send(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+address, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2")
	require.Contains(t, said, "is the collector up?")
	require.Contains(t, said, "400")
	require.NotContains(t, said, "hunter2")
	server.Close()
	said = send(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+address)
	require.Contains(t, said, "is the collector up?")
	require.NotContains(t, said, "hunter2")
}

func TestOffUnlessAnEndpointIsNamed(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{
		nil,
		{"DIBS_HTTP_ADDR=x", "OTEL_SERVICE_NAME=dibs"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_SDK_DISABLED=true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_TRACES_EXPORTER=none"},
	} {
		provider, err := otlp.Open(t.Context(), environ, "v1", slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Nil(t, provider, environ)
	}
}

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_TRACES_EXPORTER=jaeger", "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317",
	} {
		_, err := otlp.Open(t.Context(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", line}, "v1", slog.New(slog.DiscardHandler))
		require.ErrorIs(t, err, otlp.ErrConfig, line)
		name, _, _ := strings.Cut(line, "=")
		require.ErrorContains(t, err, name)
	}
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
