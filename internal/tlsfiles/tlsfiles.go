// Package tlsfiles has connections use the certificates that URLs and DSNs name.
package tlsfiles

import (
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

// Apply has c use the files. With an authority of their own, servers that show a certificate of
// anybody else are refused. The client's certificate is read for each connection, so that it can be
// replaced; while its files do not fit each other, the last one is shown. Errors name the option.
func (f Files) Apply(c *tls.Config) error {
	if file := f[CA]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("option %s: %w", CA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("option %s: %s holds no certificate", CA, file)
		}
	}
	if f[Cert] == "" && f[Key] == "" {
		return nil
	}
	if f[Cert] == "" || f[Key] == "" {
		return fmt.Errorf("options %s and %s go together", Cert, Key)
	}
	first, err := f.pair()
	if err != nil {
		return err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(first)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := f.pair(); err == nil {
			last.Store(now)
		}
		return last.Load(), nil
	}
	return nil
}

func (f Files) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f[Cert], f[Key])
	if err != nil {
		return nil, fmt.Errorf("options %s and %s: %w", Cert, Key, err)
	}
	return &pair, nil
}
