package api

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"dibs/internal/reread"
	"dibs/internal/tlsfiles"
)

// TLS are the PEM files of a certificate with its chain, and of its key.
// They are reread when they change. The zero value is plain HTTP.
type TLS struct{ Cert, Key string }

// Config returns the TLS config of a server; nil for plain HTTP.
func (t TLS) Config(log *slog.Logger) (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // no TLS is an answer
	}
	pair, err := reread.New(log, func() (*tls.Certificate, error) {
		pair, err := tlsfiles.Pair(t.Cert, t.Key)
		if err != nil {
			err = fmt.Errorf("api: the certificate and its key: %w", err)
		}
		return pair, err
	}, t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12, // clients that support 1.3 use it
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil },
	}, nil
}
