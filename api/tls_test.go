package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

// certify writes a certificate for 127.0.0.1 with this serial number, and
// its key.
func certify(t *testing.T, files api.TLS, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	text := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, text, text, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for path, block := range map[string]*pem.Block{
		files.Key: {Type: "PRIVATE KEY", Bytes: private}, files.Cert: {Type: "CERTIFICATE", Bytes: cert},
	} {
		require.NoError(t, os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
}

func TestTLS_ANewCertificateNeedsNoRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := api.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	_, err := api.New(api.Config{TLS: files}, apitest.NewFake().Deps())
	require.Error(t, err, "there is none yet")
	certify(t, files, 1)
	s, err := api.New(api.Config{TLS: files, Logger: slog.New(slog.DiscardHandler)}, apitest.NewFake().Deps())
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	// serial is the number of the certificate that a new connection gets.
	serial := func(proto string) int64 {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: proto == "HTTP/2.0", DisableKeepAlives: true,
		}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get("https://" + ln.Addr().String() + "/healthz")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, proto, res.Proto)
		require.Equal(t, uint16(tls.VersionTLS13), res.TLS.Version)
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial("HTTP/1.1"))
	require.EqualValues(t, 1, serial("HTTP/2.0"))
	certify(t, files, 2)
	require.Eventually(t, func() bool { return serial("HTTP/1.1") == 2 }, time.Minute, 50*time.Millisecond)
	_, err = tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	require.Error(t, err)
}
