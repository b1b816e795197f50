// Package tlsfiles loads certificates, and applies those named
// by URLs and DSNs.
package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// Options of a URL or a DSN.
const (
	CA   = "tls_ca"   // the server's private authority
	Cert = "tls_cert" // the client's certificate
	Key  = "tls_key"  // file of its key
)

// Options lists all options.
var Options = []string{CA, Cert, Key}

// Files maps options to PEM files; absent and "" mean unset.
type Files map[string]string

// Take moves the files out of options, which others parse.
func Take(has func(option string) string, del func(option string)) Files {
	files := Files{}
	for _, option := range Options {
		if file := has(option); file != "" {
			files[option] = file
			del(option)
		}
	}
	return files
}

// Apply configures c with the files. With a private authority, servers
// certified by any other are refused. The client's certificate is reread for
// each connection, so that it can be replaced. While its two files don't
// match, the last valid one is used. Errors name the option.
func (f Files) Apply(c *tls.Config) error {
	if file := f[CA]; file != "" {
		pool, err := Authorities(file)
		if err != nil {
			return fmt.Errorf("option %s: %w", CA, err)
		}
		c.RootCAs = pool
	}
	if f[Cert] == "" && f[Key] == "" {
		return nil
	}
	if f[Cert] == "" || f[Key] == "" {
		return fmt.Errorf("options %s and %s go together", Cert, Key)
	}
	first, err := Pair(f[Cert], f[Key])
	if err != nil {
		return fmt.Errorf("options %s and %s: %w", Cert, Key, err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(first)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := Pair(f[Cert], f[Key]); err == nil {
			last.Store(now)
		}
		return last.Load(), nil
	}
	return nil
}

// Authorities returns the certificates in a PEM file, and no others.
func Authorities(file string) (*x509.CertPool, error) {
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

// Pair loads a certificate chain and its key from two PEM files.
func Pair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := read(certFile)
	if err != nil {
		return nil, err
	}
	key, err := read(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &pair, err
}

// read returns a file without an editor's byte order mark, which
// would hide the first block.
func read(file string) ([]byte, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator's setting
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}
