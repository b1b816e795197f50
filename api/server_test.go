package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/auth"
	"dibs/api/claiming/form"
	"dibs/api/workers"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

func TestMain(m *testing.M) { testenv.Main(m) }

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
	go func() {
		r.done <- s.Serve(ctx, ln)
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		for err := range r.done {
			require.NoError(t, err)
		}
	})
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
	testenv.Receive(t, entered)
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
	require.Equal(t, 201, testenv.Receive(t, claimed))
	require.NoError(t, testenv.Receive(t, r.done))
}

func TestServer_StopGivesUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	r, claimed, letGo := runHolding(t, api.Config{ShutdownTimeout: 20 * time.Millisecond})
	r.stop()
	require.ErrorIs(t, testenv.Receive(t, r.done), workers.ErrStop)
	close(letGo)
	testenv.Receive(t, claimed)
}

func TestServer_ReadyNamesWhatIsAway(t *testing.T) {
	t.Parallel()
	deps := apitest.NewFake().Deps()
	var broken error
	deps.Ready = func(context.Context) error { return broken }
	deps.Away = func(context.Context) []string { return []string{"mysql", "redis partition 3"} }
	s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler)}, deps)
	require.NoError(t, err)
	w := apitest.Answered(t, 200, apitest.AtHome(s.Handler()), "GET", "/readyz", "")
	require.JSONEq(t, `{"status":"ready","away":["mysql","redis partition 3"]}`, w.Body.String())
	broken = errors.New("redis at 10.0.0.1 is away")
	w = apitest.Ask(apitest.AtHome(s.Handler()), "GET", "/readyz", "")
	require.Contains(t, apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable").Detail, "mysql, redis partition 3")
	require.NotContains(t, w.Body.String(), "10.0.0.1", "the route is open to everybody")
	require.Equal(t, 200, apitest.Ask(apitest.AtHome(s.Handler()), "GET", "/healthz", "").Code)
}

// A server that hangs is waited for once: a probe that waits in vain for
// two seconds takes the process out of service.
func TestServer_ReadyWaitsForAServerThatHangsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deps := apitest.NewFake().Deps()
		wait := func() { time.Sleep(time.Second) } //nolint:forbidigo // the clock is a fake
		deps.Ready = func(context.Context) error { wait(); return nil }
		deps.Away = func(context.Context) []string { wait(); return []string{"mysql"} }
		s, err := api.New(api.Config{Logger: slog.New(slog.DiscardHandler)}, deps)
		require.NoError(t, err)
		started := time.Now()
		apitest.Answered(t, 200, apitest.AtHome(s.Handler()), "GET", "/readyz", "")
		require.Equal(t, time.Second, time.Since(started))
	})
}

func TestServer_SlowClientsAndHugeHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	s, err := api.New(api.Config{}, fake.Deps())
	require.NoError(t, err)
	s.SetReadTimeouts(100*time.Millisecond, 200*time.Millisecond)
	r := serve(t, s)
	answer, _ := r.raw(t, "POST /v1/campaigns/c1/claims HTTP/1.1\r\nHost: localhost\r\nX-Big: "+strings.Repeat("a", 1<<20)+"\r\n\r\n")
	require.True(t, answer == "" || strings.HasPrefix(answer, "HTTP/1.1 431 Request Header Fields Too Large"), "%.80q", answer)
	head := "POST /v1/campaigns/c1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	answer, took := r.raw(t, "POST /v1/campa")
	require.True(t, answer == "" || strings.HasPrefix(answer, "HTTP/1.1 400 Bad Request"), "net/http ended it: %q", answer)
	require.Less(t, took, 5*time.Second)
	for name, rest := range map[string]string{
		"half a body":             "Content-Length: 20\r\n\r\n{\"user_id\"",
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
}

func TestServer_BodyOverTheLimitIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	r := run(t, fake, api.Config{})
	for path, limit := range map[string]int{"/v1/campaigns/c1/claims": 4 << 10, "/v1/claims:batch": form.BatchBodyMax, "/v1/campaigns": 1 << 20} {
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
}

func TestConfig_IsCheckedByName(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]api.Config{
		"ClaimsPerCall": {ClaimsPerCall: 129}, "UserRate": {UserRate: -1}, "Addr": {Addr: "nonsense"},
	} {
		_, err := api.New(cfg, apitest.NewFake().Deps())
		require.ErrorIs(t, err, api.ErrConfig)
		require.ErrorContains(t, err, name)
	}
	_, err := api.New(api.Config{Addr: ":8080"}, apitest.NewFake().Deps())
	require.ErrorIs(t, err, auth.ErrListen)
	require.ErrorIs(t, err, api.ErrConfig)
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
}
