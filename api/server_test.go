package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/api/workers"
	"dibs/internal/apitest"
	"dibs/lua"
)

type running struct {
	addr string
	stop context.CancelFunc
	done chan error
}

func run(t *testing.T, fake *apitest.Fake, cfg api.Config) *running {
	t.Helper()
	s, err := api.New(cfg, fake.Deps())
	require.NoError(t, err)
	return serve(t, s)
}

func serve(t *testing.T, s *api.Server) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{ln.Addr().String(), cancel, make(chan error, 1)}
	go func() { r.done <- s.Serve(ctx, ln) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) post(path, body string) (int, error) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("http://"+r.addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// raw sends bytes unchanged and reads the answer to its end.
func (r *running) raw(t *testing.T, parts ...string) (string, time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	start := time.Now()
	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(conn, part); err != nil {
				return // the server closed the connection
			}
		}
	}()
	require.NoError(t, conn.SetReadDeadline(start.Add(10*time.Second)))
	b, err := io.ReadAll(conn)
	if err != nil {
		require.NotContains(t, err.Error(), "timeout", "the server must end the connection")
	}
	return string(b), time.Since(start)
}

// runHolding is a service with a claim in flight until letGo is closed.
func runHolding(t *testing.T, cfg api.Config) (r *running, claimed chan int, letGo chan struct{}) {
	t.Helper()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	entered, letGo := make(chan struct{}), make(chan struct{})
	fake.OnClaim = func(_ context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		entered <- struct{}{}
		<-letGo
		return fake.Sums(m, reqs)
	}
	r, claimed = run(t, fake, cfg), make(chan int, 1)
	go func() {
		status, _ := r.post("/v1/campaigns/c1/claims", apitest.OneClaim)
		claimed <- status
	}()
	apitest.Receive(t, entered)
	return r, claimed, letGo
}

func TestServer_StopFinishesWhatWasTaken(t *testing.T) {
	t.Parallel()
	r, claimed, letGo := runHolding(t, api.Config{})
	r.stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond, "no new connections")
	close(letGo)
	require.Equal(t, 201, apitest.Receive(t, claimed))
	require.NoError(t, apitest.Receive(t, r.done))
}

func TestServer_StopGivesUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	r, claimed, letGo := runHolding(t, api.Config{ShutdownTimeout: 20 * time.Millisecond})
	r.stop()
	require.ErrorIs(t, apitest.Receive(t, r.done), workers.ErrStop)
	close(letGo)
	apitest.Receive(t, claimed)
}

func TestServer_ReadyNamesWhatIsAway(t *testing.T) {
	t.Parallel()
	deps := apitest.NewFake().Deps()
	var broken error
	deps.Ready = func(context.Context) error { return broken }
	deps.Away = func(context.Context) []string { return []string{"mysql", "redis partition 3"} }
	s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler)}, deps)
	require.NoError(t, err)
	w := apitest.Ask(apitest.AtHome(s.Handler()), "GET", "/readyz", "")
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"status":"ready","away":["mysql","redis partition 3"]}`, w.Body.String())
	broken = errors.New("redis at 10.0.0.1 is away")
	w = apitest.Ask(apitest.AtHome(s.Handler()), "GET", "/readyz", "")
	require.Contains(t, apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable").Detail, "mysql, redis partition 3")
	require.NotContains(t, w.Body.String(), "10.0.0.1", "the route is open to everybody")
	require.Equal(t, 200, apitest.Ask(apitest.AtHome(s.Handler()), "GET", "/healthz", "").Code)
}

func TestServer_HugeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	r := run(t, fake, api.Config{})
	answer, _ := r.raw(t, "POST /v1/campaigns/c1/claims HTTP/1.1\r\nHost: localhost\r\nX-Big: "+strings.Repeat("a", 1<<20)+"\r\n\r\n")
	require.True(t, answer == "" || strings.HasPrefix(answer, "HTTP/1.1 431 Request Header Fields Too Large"), "%.80q", answer)
	require.Zero(t, fake.Sent())
	r.stop()
	require.NoError(t, apitest.Receive(t, r.done))
}

func TestServer_SlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	s, err := api.New(api.Config{}, fake.Deps())
	require.NoError(t, err)
	s.SetReadTimeouts(100*time.Millisecond, 200*time.Millisecond)
	r := serve(t, s)
	head := "POST /v1/campaigns/c1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	answer, took := r.raw(t, "POST /v1/campa")
	requireCut(t, answer)
	require.Less(t, took, 5*time.Second)
	answer, took = r.raw(t, head)
	requireCut(t, answer)
	require.Less(t, took, 5*time.Second)
	for name, rest := range map[string]string{
		"a body that never comes": "Content-Length: 20\r\n\r\n", "half a body": "Content-Length: 20\r\n\r\n{\"user_id\"",
		"a chunk that never ends": "Transfer-Encoding: chunked\r\n\r\nff\r\n{\"user_id\":\"u\"}",
	} {
		answer, took = r.raw(t, head+rest)
		require.Less(t, took, 5*time.Second, name)
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		require.NoError(t, err, name)
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		apitest.RequireProblem(t, 400, resp.Header, body, "malformed")
	}
	require.Zero(t, fake.Sent())
	status, err := r.post("/v1/campaigns/c1/claims", apitest.OneClaim)
	require.NoError(t, err)
	require.Equal(t, 201, status, "control")
	r.stop()
	require.NoError(t, apitest.Receive(t, r.done))
}

// requireCut expects that net/http ended the connection itself: silently or
// with its own 400, before any handler.
func requireCut(t *testing.T, answer string) {
	t.Helper()
	require.True(t, answer == "" || strings.HasPrefix(answer, "HTTP/1.1 400 Bad Request"), "%q", answer)
}

// The default must exceed the time that load balancers keep a connection.
func TestServer_KeepsAConnectionForTheTimeThatIsSet(t *testing.T) {
	t.Parallel()
	require.Greater(t, api.Config{}.WithDefaults().IdleTimeout, 10*time.Minute)
	r := run(t, apitest.NewFake(), api.Config{IdleTimeout: 50 * time.Millisecond})
	answer, took := r.raw(t, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.Contains(t, answer, "200 OK")
	require.Less(t, took, 5*time.Second)
	r.stop()
	require.NoError(t, apitest.Receive(t, r.done))
}

func TestServer_BodyOverTheLimitIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	r := run(t, fake, api.Config{})
	for path, limit := range map[string]int{"/v1/campaigns/c1/claims": 4 << 10, "/v1/claims:batch": claiming.BatchBodyMax, "/v1/campaigns": 1 << 20} {
		for _, size := range []string{
			fmt.Sprintf("Content-Length: %d\r\n\r\n", 1<<30),
			"Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", 2*limit) + strings.Repeat(" ", 2*limit),
		} {
			conn, err := net.Dial("tcp", r.addr)
			require.NoError(t, err)
			go func() { _, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\n"+size) }()
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, path)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			_ = conn.Close()
			apitest.RequireProblem(t, 413, resp.Header, body, "too_large")
		}
	}
	require.Zero(t, fake.Sent())
	r.stop()
	require.NoError(t, apitest.Receive(t, r.done))
}

func TestConfig_IsCheckedByName(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]api.Config{
		"ClaimsPerCall": {ClaimsPerCall: 129}, "QueueWait": {QueueWait: -1}, "UserRate": {UserRate: -1}, "CallTimeout": {CallTimeout: -1},
		"Addr": {Addr: "nonsense"},
	} {
		_, err := api.New(cfg, apitest.NewFake().Deps())
		require.ErrorIs(t, err, api.ErrConfig)
		require.ErrorContains(t, err, name)
	}
	_, err := api.New(api.Config{}, api.Deps{})
	require.ErrorIs(t, err, api.ErrConfig)
}

func TestMetrics_CountClaimsByOutcome(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 2)), api.Config{})
	for range 4 {
		apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim)
	}
	apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", `{`)
	apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"u"},{"campaign_id":"no","user_id":"u"}]}`)
	text := apitest.Ask(h, "GET", "/metrics", "").Body.String()
	for _, line := range []string{
		`dibs_claims_total{outcome="claimed"} 2`, `dibs_claims_total{outcome="sold_out"} 3`, `dibs_claims_total{outcome="malformed"} 1`,
		`dibs_claims_total{outcome="campaign_not_found"} 1`, `dibs_claims_per_call_count 2`, `dibs_claims_queued 0`,
		`dibs_http_request_seconds_count{class="4xx",route="/v1/campaigns/{id}/claims"} 3`,
		`dibs_http_request_seconds_count{class="2xx",route="/v1/claims:batch"} 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
}

// A client that closed its sending half may still read. net/http cancels
// its request as if it had disconnected.
func TestServe_AClientThatHangsUpIsNoErrorOfTheServer(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 2))
	h := apitest.NewServer(t, fake, api.Config{})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	ask := func(method, path, body string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
		return w.Code
	}
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v1/audit", ""))
	require.GreaterOrEqual(t, ask(http.MethodPost, "/v1/campaigns/c1/claims", apitest.OneClaim), 500, "control: it does not wait for its answer")
	text := apitest.Ask(h, "GET", "/metrics", "").Body.String()
	require.NotContains(t, text, `class="5xx"`)
	require.Contains(t, text, `dibs_http_request_seconds_count{class="4xx",route="/v1/campaigns/{id}/claims"} 1`)
}

func TestServe_AnswersTellBrowsersWhatTheyAre(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 2)), api.Config{})
	for target, want := range map[string]string{"http://localhost/v1/campaigns": "", "https://localhost/v1/campaigns": "max-age=31536000"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		require.Equal(t, want, w.Header().Get("Strict-Transport-Security"), target)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), target)
		if strings.HasPrefix(target, "/v1/") {
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"), target)
		}
	}
}

// A client must learn of a shutdown from an answer. Otherwise its
// connection closes under its next request.
func TestAStopFirstSaysGoodbyeOnEveryConnection(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	r := run(t, apitest.NewFake(), api.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) *http.Response { // reads and closes the body
		res, err := client.Get("http://" + r.addr + path)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		require.NoError(t, res.Body.Close())
		return res
	}
	require.False(t, get("/healthz").Close)
	require.Equal(t, http.StatusOK, get("/readyz").StatusCode)

	r.stop()
	require.Eventually(t, func() bool { return get("/readyz").StatusCode == http.StatusServiceUnavailable }, time.Minute, time.Millisecond)
	res := get("/healthz")
	require.Equal(t, http.StatusOK, res.StatusCode, "it still answers")
	require.True(t, res.Close, "and closes the connection with the answer")
	require.NoError(t, <-r.done)
	require.Contains(t, said.String(), "every request that was taken is answered")
}

// Connections over the limit must wait, and be served when others close.
func TestServe_BoundsConnections(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	served := make(chan error)
	go func() { served <- api.Serve(srv, ln, 1, nil) }()
	ask := func() (conn net.Conn, answered chan error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		answered = make(chan error, 1)
		go func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				err = res.Body.Close()
			}
			answered <- err
		}()
		return conn, answered
	}
	first, answered := ask()
	require.NoError(t, <-answered)
	second, answered := ask()
	select {
	case err := <-answered:
		require.FailNow(t, "it did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, first.Close())
	require.NoError(t, <-answered)
	require.NoError(t, second.Close())
	require.NoError(t, srv.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}
