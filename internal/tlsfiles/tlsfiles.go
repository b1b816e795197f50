// Package tlsfiles reads certificates, and has connections use those that URLs
// and DSNs name.
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
	CA   = "tls_ca"   // file of the private authority that the server's certificate comes from
	Cert = "tls_cert" // file of the certificate that the client shows
	Key  = "tls_key"  // file of its key
)

// Options are all of them.
var Options = []string{CA, Cert, Key}

// Files are PEM files by their options; one that is absent or "" is not used.
type Files map[string]string

// Take takes the files out of options, which others read by what is left.
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

// Apply has c use the files. With an authority of their own, servers that show
// a certificate of anybody else are refused. The client's certificate is read
// for each connection, so that it can be replaced; while its files do not fit
// each other, the last one is shown. Errors name the option.
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

// Authorities are the certificates in a PEM file, and no others.
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

// Pair is a certificate, with those that vouch for it, and its key, of two PEM
// files.
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

// read is a file without the byte order mark of an editor, behind which the
// first block would not be seen.
func read(file string) ([]byte, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator's setting
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}
