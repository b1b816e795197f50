package redisconn_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

func detect(t *testing.T, url string, d redisconn.Fsync) redis.UniversalClient {
	t.Helper()
	rdb, err := redisconn.Detect(t.Context(), func() string { return url }, d)
	require.NoError(t, err, url)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func requireAllSlots(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	for i := range 50 {
		require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("dibs:{p%d}:x", i), i, 0).Err())
	}
}

func TestDetect_OneAddressOfACluster(t *testing.T) {
	t.Parallel()
	nodes := testenv.RedisCluster(t, 3)
	for _, url := range []string{"redis://" + nodes[1], "redis://" + nodes[1] + "/0?pool_size=9", "redis://" + nodes[2] + "?cluster=true"} {
		rdb := detect(t, url, redisconn.NoFsync)
		require.IsType(t, &redis.ClusterClient{}, rdb)
		require.NoError(t, redisconn.CheckTopology(t.Context(), rdb, url))
		requireAllSlots(t, rdb)
	}
	requireAllSlots(t, connect(t, "redis://"+nodes[0]+"?cluster=true"))

	url := "redis://" + machine.Rewriting(t, nodes[1], "cluster_enabled", "cluster_enabxxx")
	require.IsType(t, &redis.ClusterClient{}, detect(t, url, redisconn.NoFsync), "a server that hides it has slots")
	require.ErrorContains(t, redisconn.CheckTopology(t.Context(), connect(t, url), url), "add the option cluster=true")
	url = "redis://" + nodes[1]
	require.ErrorIs(t, redisconn.CheckTopology(t.Context(), connect(t, url), url), redisconn.ErrURL, "it was away when it was asked")
	url += "?cluster=false"
	require.NoError(t, redisconn.CheckTopology(t.Context(), detect(t, url, redisconn.NoFsync), url))
	require.IsType(t, &redis.Client{}, detect(t, url, redisconn.NoFsync))
}

func TestDetect_OneServerIsOneServer(t *testing.T) {
	t.Parallel()
	addr := testenv.SharedRedis(t).Addr()
	for _, at := range []string{addr, machine.Rewriting(t, addr, "cluster_enabled", "cluster_enabxxx"), "127.0.0.1:1"} {
		require.IsType(t, &redis.Client{}, detect(t, "redis://"+at, redisconn.NoFsync))
	}
	_, err := redisconn.Connect("redis://a?cluster=yes")
	require.ErrorContains(t, err, "cluster must be true or false")
	_, err = redisconn.Connect("redis://a/1?cluster=true")
	require.ErrorContains(t, err, "database 0")
	_, err = redisconn.Connect("redis+sentinel://a:1/m?cluster=true")
	require.ErrorIs(t, err, redisconn.ErrURL)
}

// The nodes are 127.0.0.1 and 127.0.0.2, and require client certificates.
func TestConnect_TLSClusterWithACertificateForEachNode(t *testing.T) {
	t.Parallel()
	certs := make([]string, 3)
	keys := make([]string, 3)
	var all []byte
	for i, name := range []string{"127.0.0.1", "127.0.0.2", "client"} {
		certs[i], keys[i] = testenv.CertificateFor(t, name)
		text, err := os.ReadFile(certs[i])
		require.NoError(t, err)
		all = append(all, text...)
	}
	authorities := filepath.Join(t.TempDir(), "all.pem")
	require.NoError(t, os.WriteFile(authorities, all, 0o600))
	port := machine.Port(t)
	ports := []int{port, machine.Port(t)}
	testenv.RedisClusterOf(t, 2, func(i int) []string {
		return []string{
			"bind 127.0.0.1 127.0.0.2", fmt.Sprintf("cluster-announce-ip 127.0.0.%d", i+1), "tls-port " + strconv.Itoa(ports[i]), "tls-cluster yes",
			"tls-cert-file " + certs[i], "tls-key-file " + keys[i], "tls-ca-cert-file " + authorities, "tls-auth-clients yes",
		}
	})
	url := fmt.Sprintf("rediss://127.0.0.1:%d?tls_ca=%s", port, authorities)
	mine := fmt.Sprintf("&tls_cert=%s&tls_key=%s", certs[2], keys[2])
	requireAllSlots(t, detect(t, url+mine, redisconn.NoFsync))
	require.Error(t, connect(t, url).Ping(t.Context()).Err(), "it asks for a certificate")
	text, err := os.ReadFile(certs[0]) // the authority of only one node
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(authorities, text, 0o600))
	strict := connect(t, url+mine+"&cluster=true")
	failed := 0
	for i := range 50 {
		if err := strict.Get(t.Context(), fmt.Sprintf("dibs:{p%d}:x", i)).Err(); err != nil {
			require.ErrorContains(t, err, "unknown authority")
			failed++
		}
	}
	require.Positive(t, failed)
}

// Managed clusters announce addresses that their certificate lacks.
func TestConnect_ANodeKnownByItsAddressMayHaveTheCertificateOfTheURL(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"redis.example": "", "127.0.0.1": "", "other.example": "certificate"} {
		cert, key := testenv.CertificateFor(t, name)
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		node := httptest.NewUnstartedServer(http.NotFoundHandler()) // only its handshake counts
		node.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		node.StartTLS()
		t.Cleanup(node.Close)
		conn, err := redisconn.DialNode(t.Context(), "rediss://redis.example:6379?tls_ca="+cert, node.Listener.Addr().String())
		if says == "" {
			require.NoError(t, err, name)
			require.NoError(t, conn.Close())
			continue
		}
		require.ErrorContains(t, err, says, name)
	}
}

// Otherwise a rotated certificate would need a restart.
func TestConnect_ShowsACertificateThatIsReplaced(t *testing.T) {
	t.Parallel()
	server, serverKey := testenv.Certificate(t)
	mine, mineKey := testenv.CertificateFor(t, "client")
	next, nextKey := testenv.CertificateFor(t, "client")
	clients := filepath.Join(t.TempDir(), "clients.pem")
	copyTo := func(from, to string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	copyTo(next, clients)
	port := machine.Port(t)
	testenv.Redis(t, "tls-port "+strconv.Itoa(port), "tls-cert-file "+server, "tls-key-file "+serverKey, "tls-ca-cert-file "+clients)
	url := fmt.Sprintf("rediss://127.0.0.1:%d?tls_ca=%s&tls_cert=%s&tls_key=%s", port, server, mine, mineKey)
	rdb := connect(t, url)
	require.Error(t, rdb.Ping(t.Context()).Err(), "the server does not know the first one")
	copyTo(next, mine)
	require.Error(t, rdb.Ping(t.Context()).Err(), "a certificate without its key: the first one is shown")
	copyTo(nextKey, mineKey)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	_, err := redisconn.Connect("rediss://127.0.0.1?tls_cert=" + mine)
	require.ErrorContains(t, err, "go together")
	_, err = redisconn.Connect("redis+sentinel://127.0.0.1:1/m?tls=all&tls_cert=/no&tls_key=/no")
	require.ErrorContains(t, err, "tls_cert and tls_key")
}
