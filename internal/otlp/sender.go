package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"dibs/internal/tlsfiles"
)

// errRefused says that the collector did not take spans.
var errRefused = errors.New("otlp: the collector refused spans")

// sender posts spans to a collector. What it can't bring is lost: spans are for people who look, and no one waits for them.
type sender struct {
	to     *target
	client *http.Client
}

var _ otlptrace.Client = (*sender)(nil)

func newSender(to *target) (*sender, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	if to.ca != "" {
		pool, err := tlsfiles.Authorities(to.ca)
		if err != nil {
			return nil, fmt.Errorf("%w: %sCERTIFICATE: no certificate can be read from %s", ErrConfig, exporter, to.ca)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &sender{to, &http.Client{Transport: transport, Timeout: to.timeout}}, nil
}

// Start has nothing to do.
func (s *sender) Start(context.Context) error { return nil }

// Stop lets go of connections.
func (s *sender) Stop(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := s.encode(spans)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	for name, value := range s.to.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.to.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 512)) // and the connection can be used again
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%w: %s: %q", errRefused, res.Status, answer)
	}
	return nil
}

// encode makes the body of a request. TracesData is, on the wire, the request's own message, whose package would bring gRPC along.
func (s *sender) encode(spans []*tracepb.ResourceSpans) ([]byte, error) {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	if !s.to.gzip {
		return body, nil
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(body) // a buffer takes all
	_ = w.Close()
	return packed.Bytes(), nil
}
