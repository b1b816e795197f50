package api_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/internal/testenv"
)

// certify puts a new certificate and its key into place.
func certify(t *testing.T, files api.TLS) {
	t.Helper()
	cert, key := testenv.Certificate(t)
	require.NoError(t, os.Rename(key, files.Key))
	require.NoError(t, os.Rename(cert, files.Cert))
}

func TestTLS_ANewCertificateNeedsNoRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := api.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	_, err := api.New(api.Config{TLS: files}, apitest.NewFake().Deps())
	require.Error(t, err, "there is none yet")
	certify(t, files)
	r := run(t, apitest.NewFake(), api.Config{TLS: files, Logger: slog.New(slog.DiscardHandler)})
	// serial is the number of the certificate that a new connection gets.
	serial := func(proto string) int64 {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: proto == "HTTP/2.0", DisableKeepAlives: true,
		}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get("https://" + r.addr + "/healthz")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, proto, res.Proto)
		require.Equal(t, uint16(tls.VersionTLS13), res.TLS.Version)
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	first := serial("HTTP/1.1")
	require.Equal(t, first, serial("HTTP/2.0"))
	certify(t, files)
	require.Eventually(t, func() bool { return serial("HTTP/1.1") != first }, time.Minute, 50*time.Millisecond)
	_, err = tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	require.Error(t, err)
	r.stop()
	require.NoError(t, <-r.done)
}
