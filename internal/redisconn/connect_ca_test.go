package redisconn_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testenv"
)

// behindTLS is the address of a Redis that is spoken to by TLS.
func behindTLS(t *testing.T, addr, cert, key string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			front, err := ln.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", addr)
			if err != nil {
				_ = front.Close()
				return
			}
			go func() { _, _ = io.Copy(back, front); _ = back.Close() }()
			go func() { _, _ = io.Copy(front, back); _ = front.Close() }()
		}
	}()
	return ln.Addr().String()
}

func TestConnect_TrustsAPrivateAuthorityAndNoOther(t *testing.T) {
	t.Parallel()
	cert, key := testenv.Certificate(t)
	other, _ := testenv.Certificate(t)
	addr := behindTLS(t, testenv.SharedRedis(t).Addr(), cert, key)
	ping := func(query string) error {
		rdb, err := redisconn.Connect("rediss://" + addr + "/0" + query)
		require.NoError(t, err)
		defer func() { _ = rdb.Close() }()
		return rdb.Ping(t.Context()).Err()
	}
	require.NoError(t, ping("?tls_ca="+cert))
	require.NoError(t, ping("?dial_timeout=2s&tls_ca="+cert))
	for _, query := range []string{"", "?tls_ca=" + other} {
		require.ErrorContains(t, ping(query), "certificate signed by unknown authority")
	}
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, bad := range []string{
		"redis://h?tls_ca=" + cert, "rediss://h?tls_ca=", "rediss://h?tls_ca=/no/such", "rediss://h?tls_ca=" + empty, "rediss://h?tls_ca=" + key,
	} {
		_, err := redisconn.Connect(bad)
		require.ErrorContains(t, err, "tls_ca", bad)
	}
}
