package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// balancer is a small load balancer for API processes. It polls
// /readyz and sends each request to the next ready process. If
// the connection is refused, nothing was sent, and the request
// goes to the next. It retries nothing else.
type balancer struct {
	next  atomic.Uint64
	ready []atomic.Bool
	hosts []string
}

// balance starts a balancer and returns its address.
func balance(t *testing.T, apis []*process) (*balancer, string) {
	t.Helper()
	b := &balancer{ready: make([]atomic.Bool, len(apis))}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var probes sync.WaitGroup
	for i, api := range apis {
		b.hosts = append(b.hosts, api.settings["DIBS_HTTP_ADDR"])
		b.ready[i].Store(true)
	}
	for i := range b.hosts {
		probes.Go(func() { b.probe(ctx, i) })
	}
	dialer := &net.Dialer{Timeout: time.Second}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, DialContext: dialer.DialContext}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "balanced"}) },
		Transport: passOn(func(r *http.Request) (*http.Response, error) { return b.send(transport, r) }),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	})
	t.Cleanup(func() {
		stop()
		front.Close()
		probes.Wait()
		transport.CloseIdleConnections()
	})
	return b, front.URL
}

type passOn func(r *http.Request) (*http.Response, error)

func (p passOn) RoundTrip(r *http.Request) (*http.Response, error) { return p(r) }

func (b *balancer) send(transport http.RoundTripper, r *http.Request) (*http.Response, error) {
	body, refused := io.ReadAll(r.Body)
	for range len(b.hosts) {
		r.Body = io.NopCloser(bytes.NewReader(body)) // a refused connection closes it unread
		r.URL.Host = b.choose()
		res, err := transport.RoundTrip(r)
		dial := new(net.OpError)
		if !errors.As(err, &dial) || dial.Op != "dial" {
			return res, err
		}
		refused = err
	}
	return nil, refused
}

// choose returns the next ready process, round-robin.
func (b *balancer) choose() string {
	first := int(b.next.Add(1)) % len(b.hosts)
	for i := range b.hosts {
		if at := (first + i) % len(b.hosts); b.ready[at].Load() {
			return b.hosts[at]
		}
	}
	return b.hosts[first]
}

func (b *balancer) probe(ctx context.Context, i int) {
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		req, err := http.NewRequestWithContext(asked, http.MethodGet, "http://"+b.hosts[i]+"/readyz", http.NoBody)
		if err == nil {
			var res *http.Response
			if res, err = client.Do(req); err == nil {
				_ = res.Body.Close()
			}
			b.ready[i].Store(err == nil && res.StatusCode == http.StatusOK)
		}
		cancel()
		<-time.After(20 * time.Millisecond)
	}
}

// claimWithoutEnd has clients claim, each claim once and without
// an Idempotency-Key, until stopped. It returns the number of
// claims made, and the failures.
func claimWithoutEnd(t *testing.T, base, campaignID string, clients int) (stop func() (claimed int64, failed []string)) {
	t.Helper()
	var made, users atomic.Int64
	var mu sync.Mutex
	var failures []string
	var wg sync.WaitGroup
	over := make(chan struct{})
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	sender := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				body, _ := json.Marshal(map[string]any{"user_id": fmt.Sprint("u", users.Add(1))})
				what := ""
				res, err := sender.Post(base+"/v1/campaigns/"+campaignID+"/claims", "application/json", bytes.NewReader(body))
				if err == nil {
					text, _ := io.ReadAll(res.Body)
					_ = res.Body.Close()
					what = string(text)
				}
				if err == nil && res.StatusCode == http.StatusCreated {
					made.Add(1)
					continue
				}
				mu.Lock()
				failures = append(failures, fmt.Sprint(err, " ", what))
				mu.Unlock()
			}
		})
	}
	end := sync.OnceFunc(func() { close(over); wg.Wait(); transport.CloseIdleConnections() })
	t.Cleanup(end)
	return func() (int64, []string) {
		end()
		return made.Load(), failures
	}
}

// Claims that can't be committed block the reader. MySQL and Redis answer and
// the process is up, yet /readyz must report it stuck until it goes on.
func TestAStuckConsumerIsNotWell(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{})
	const claims = 11_000 // more than a consumer holds
	c := openCampaign(t, s.apis[0].url, campaign{Total: claims})
	locked, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = locked.Close() }()
	_, err = locked.ExecContext(t.Context(), "LOCK TABLES claims READ")
	require.NoError(t, err)
	for n := range claims / 1000 {
		var batch []map[string]any
		for i := range 1000 {
			batch = append(batch, map[string]any{"campaign_id": c.ID, "user_id": fmt.Sprint("u", n, "-", i)})
		}
		got := call(t, http.MethodPost, s.apis[0].url+"/v1/claims:batch", "", map[string]any{"claims": batch})
		require.Equal(t, http.StatusOK, got.status, got.body)
	}

	require.Eventually(t, func() bool { return statusOf(s.consumers[0], "/readyz") == http.StatusServiceUnavailable }, time.Minute, 200*time.Millisecond)
	require.Contains(t, call(t, http.MethodGet, s.consumers[0].url+"/readyz", "", nil).body, "is stuck")
	require.Equal(t, http.StatusOK, statusOf(s.consumers[0], "/healthz"), "no restart would help against a MySQL that does nothing for some minutes")
	_, err = locked.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return statusOf(s.consumers[0], "/readyz") == http.StatusOK }, upTimeout, 50*time.Millisecond)
	s.awaitSynced(c.ID, claims)
}
