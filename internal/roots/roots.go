// Package roots reads the certificates of a private authority.
package roots

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Read reads a file of certificates, PEM. The pool holds them and no others: a server that shows a certificate of anybody else is refused.
func Read(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator's setting
	if err != nil {
		return nil, fmt.Errorf("roots: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("roots: %s holds no certificate", path)
	}
	return pool, nil
}
