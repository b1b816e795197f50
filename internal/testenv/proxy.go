package testenv

import (
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// Proxy starts a toxiproxy in this process in front of upstream (host:port) and stops it with the test. Its address
// is Listen; Stop and Start cut and restore it; Toxics.AddToxicJson adds delays, cuts and limits.
func Proxy(t testing.TB, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	port, release, err := reservePort()
	require.NoError(t, err)
	proxy := toxiproxy.NewProxy(server, t.Name(), loopback(port), upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		proxy.Stop()
		release()
	})
	return proxy
}
