package webhooks_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/webhooks"
)

func TestSign_IsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	key := []byte("01234567890123456789012345678901")
	require.Equal(t, "v1,1l34d9U9bSaAVQFy2uVdg3CHHT+o7pMzi59Vrub2gOE=", webhooks.Sign(key, "msg_1", time.Unix(1700000000, 0), []byte(`{"a":1}`)))
}

func TestMayDial(t *testing.T) {
	t.Parallel()
	for addr, c := range map[string]struct{ public, private bool }{
		"93.184.216.34": {true, true}, "2606:4700::1111": {true, true},
		"10.1.2.3": {false, true}, "172.31.0.1": {false, true}, "192.168.0.1": {false, true}, "100.64.1.1": {false, true},
		"127.0.0.1": {false, true}, "::1": {false, true}, "fd00::1": {false, true}, "::ffff:10.0.0.1": {false, true},
		"169.254.169.254": {}, "0.0.0.0": {}, "224.0.0.1": {}, "255.255.255.255": {}, "::": {}, "fe80::1": {}, "ff02::1": {},
		"64:ff9b::a00:1": {}, "2002:a00:1::": {}, "::ffff:169.254.169.254": {}, "192.0.0.8": {}, "198.18.0.1": {},
	} {
		require.Equal(t, c.public, webhooks.MayDial(addr, false) == nil, addr)
		require.Equal(t, c.private, webhooks.MayDial(addr, true) == nil, addr)
	}
	require.ErrorIs(t, webhooks.MayDial("10.0.0.1", false), webhooks.ErrAddress)
}

// The dialed address is checked, not the name: otherwise a later
// DNS answer could bypass the check.
func TestDispatcher_DialsNoPrivateAddress(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	p := start(t, webhooks.Config{
		DB: db, Endpoints: fixed(endpoints(t, endpoint("shop", "https://10.255.255.1/hook"))), GiveUpAfter: time.Millisecond,
	})
	p.submit("spring", 1, 1)
	eventually(t, "parked", func() bool {
		var reasons []string
		require.NoError(t, db.Raw("SELECT reason FROM webhook_events WHERE parked_at IS NOT NULL").Scan(&reasons).Error)
		return len(reasons) == 1 && strings.Contains(reasons[0], "DIBS_WEBHOOKS_PRIVATE")
	})
}

// A proxy may have a private address, and checks those behind it. This
// process must not dial them. Loopback endpoints never use the proxy.
// Many receivers are told apart by a secret in their address.
func TestSend_FailuresDoNotQuoteTheAddress(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	one := endpoints(t, endpoint("shop", gone.URL+"/hooks/geheim?token=geheim"))["shop"]
	err := webhooks.Test(t.Context(), one, true, nil)
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "geheim")
}

func TestDispatcher_PostsThroughAProxy(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.Host:
		default:
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	r := newReceiver(t)
	p := start(t, webhooks.Config{
		DB: syncertest.OpenServer(t), Endpoints: fixed(endpoints(t, endpoint("shop", "https://shop.example/hook"), endpoint("here", r.URL))),
		Proxy: func(*url.URL) (*url.URL, error) { return at, nil },
	})
	p.submit("spring", 1, 1)
	require.Equal(t, "CONNECT shop.example:443", <-asked)
	eventually(t, "posted to this machine", func() bool { return len(r.seqs("spring")) == 1 })
}

func TestDispatcher_FollowsNoRedirectAndPassesOverWhatNobodyWants(t *testing.T) {
	t.Parallel()
	elsewhere, r := newReceiver(t), newReceiver(t)
	redirect := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	p := start(t, webhooks.Config{
		DB: syncertest.OpenServer(t), Endpoints: fixed(endpoints(t, endpoint("away", redirect.URL, "spring"), endpoint("good", r.URL, "spring"))),
	})
	p.submit("rain", 1, 10)
	require.EqualValues(t, 10, p.settled.Load())
	p.submit("spring", 1, 3)
	eventually(t, "settled", func() bool { return p.settled.Load() == 13 })
	require.Equal(t, 3, r.count())
	require.Zero(t, elsewhere.count())
}

func TestParse_Refusals(t *testing.T) {
	t.Parallel()
	good := endpoint("shop", "https://example.com/hook", "spring")
	for name, text := range map[string]string{
		"another field":             strings.Replace(good, `"name"`, `"nome":"x","name"`, 1),
		"one name twice":            good + "," + good,
		"http":                      strings.Replace(good, "https://", "http://", 1),
		"a password":                strings.Replace(good, "https://", "https://me:pw@", 1),
		"no secret":                 strings.Replace(good, `"`+oldSecret+`","`+newSecret+`"`, "", 1),
		"a short secret":            strings.Replace(good, oldSecret, "whsec_c2hvcnQ=", 1),
		"an unknown type of event":  strings.Replace(good, `claim.accepted`, `claim.acepted`, 1),
		"a campaign that can't be":  strings.Replace(good, `"spring"`, `"a b"`, 1),
		"an endpoint that is null":  "null",
		"more behind the object":    good + "]}}",
		"more endpoints than there": strings.Repeat(good+",", webhooks.EndpointsMax) + good,
	} {
		_, err := webhooks.Parse([]byte(`{"endpoints":[` + text + `]}`))
		require.ErrorIs(t, err, webhooks.ErrConfig, name)
		require.NotContains(t, err.Error(), "MDEyMzQ1", name)
	}
	for _, url := range []string{"http://127.0.0.1:8080/x", "http://localhost/x", "http://[::1]:1/", "https://10.0.0.1/"} {
		endpoints(t, endpoint("shop", url))
	}
}

func TestReadFile_SecretsRotateWithoutARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "endpoints.json")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(`{"endpoints":[`+text+`]}`), 0o600)) }
	write(endpoint("shop", "https://example.com/hook"))
	file, err := webhooks.ReadFile(path, syncertest.Quiet())
	require.NoError(t, err)
	require.Equal(t, []string{oldSecret, newSecret}, file.Get()["shop"].Secrets)
	write(strings.Replace(endpoint("shop", "https://example.com/hook"), `"`+oldSecret+`",`, "", 1))
	eventually(t, "read again", func() bool { return len(file.Get()["shop"].Secrets) == 1 })
	write("what is no endpoint")
	require.NotEmpty(t, file.Get(), "the last good one stays")
}
