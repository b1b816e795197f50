package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"

	"dibs/client"
	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/servetest"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// serve runs a whole service on embedded servers during the test, and returns
// its address.
func serve(t *testing.T, settings ...string) (url string) {
	t.Helper()
	url, _ = servetest.Serve(t, cmd.Env{Environ: append(settings, "DIBS_LOG_LEVEL=error")})
	return url
}

func connect(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	require.NoError(t, err)
	t.Cleanup(c.Disconnect)
	return c
}

func coupon(t testing.TB, admin *client.Client, total, perUser int64) (id string) {
	t.Helper()
	id = testenv.UniqueID(t, "c")
	_, created, err := admin.CreateCampaign(t.Context(), client.NewCampaign{ID: id, Kind: client.KindCoupon, Total: &total, PerUser: &perUser})
	require.NoError(t, err)
	require.True(t, created)
	return id
}

func claimed(t testing.TB, c *client.Client, campaignID string) int64 {
	t.Helper()
	stock, err := c.Stock(t.Context(), campaignID)
	require.NoError(t, err)
	return stock.Claimed
}

func behind(t *testing.T, url string) (proxy *toxiproxy.Proxy, proxied string) {
	t.Helper()
	proxy = machine.Proxy(t, strings.TrimPrefix(url, "http://"))
	return proxy, "http://" + proxy.Listen
}

func poison(t testing.TB, proxy *toxiproxy.Proxy, toxic string) {
	t.Helper()
	_, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(t, err)
}

func respond(status int, body string, headers ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(headers); i += 2 {
		res.Header.Set(headers[i], headers[i+1])
	}
	return res
}
