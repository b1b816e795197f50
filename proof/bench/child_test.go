package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claimed"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/cmd"
	"dibs/internal/audit"
	"dibs/internal/ledger"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/retention"
)

// A child is this test binary as a server: so the measured code
// has its own process, heap and scheduler, as in production.
const (
	childVariable = "DIBS_BENCH_CHILD" // which server to be
	childConfig   = "DIBS_BENCH_CONFIG"

	childNoop = "noop" // replies without doing anything
	childAPI  = "api"  // the API over a Redis, without MySQL
	childRole = "role" // a role of the program
)

const childTimeout = time.Minute

// errChild is wrapped if a child can't run as requested.
var errChild = errors.New("bench: bad child")

type childSettings struct {
	Profile string `json:"profile,omitempty"` // file for a CPU profile; "" is none

	// Reply of childNoop.
	Header http.Header `json:"header,omitempty"`
	Body   string      `json:"body,omitempty"`

	// Config of childAPI.
	RedisURL       string `json:"redis_url,omitempty"`
	ClaimsPerCall  int    `json:"claims_per_call,omitempty"`
	ClaimsInFlight int    `json:"claims_in_flight,omitempty"`

	Tokens api.Tokens `json:"tokens,omitzero"`

	// Role and settings of childRole.
	Role    string   `json:"role,omitempty"`
	Environ []string `json:"environ,omitempty"`
}

type child struct {
	addr string
	pid  int
	stop func() // and wait for its end
}

// startChild starts a child. It ends with the benchmark, or with
// this process.
func startChild(b *testing.B, name string, settings childSettings) *child {
	b.Helper()
	config, err := json.Marshal(settings)
	require.NoError(b, err)
	self, err := os.Executable()
	require.NoError(b, err)
	server := exec.CommandContext(context.WithoutCancel(b.Context()), self)
	server.Env = append(os.Environ(), childVariable+"="+name, childConfig+"="+string(config))
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	require.NoError(b, err)
	out, err := server.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, server.Start())
	stop := sync.OnceFunc(func() {
		_ = in.Close()
		_ = server.Wait()
	})
	b.Cleanup(stop)
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case addr := <-line:
		require.NotEmpty(b, addr, "the child ended")
		return &child{addr: addr, pid: server.Process.Pid, stop: stop}
	case <-time.After(childTimeout):
		b.Fatal("the child does not listen")
		return nil
	}
}

func (c *child) cpu(b *testing.B) time.Duration {
	b.Helper()
	return cpuOf(b, c.pid)
}

// runChild is the child's main: it serves until its standard input ends.
func runChild(name string) error {
	var settings childSettings
	if err := json.Unmarshal([]byte(os.Getenv(childConfig)), &settings); err != nil {
		return fmt.Errorf("%w: %w", errChild, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if name == childRole {
		return runRole(ctx, settings)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serve, err := childServer(name, settings)
	if err != nil {
		return err
	}
	done, err := profileInto(settings.Profile)
	if err != nil {
		return err
	}
	defer done()
	fmt.Println(ln.Addr())
	return serve(ctx, ln)
}

func runRole(ctx context.Context, settings childSettings) error {
	done, err := profileInto(settings.Profile)
	if err != nil {
		return err
	}
	defer done()
	if settings.Role != "api" {
		fmt.Println("no address")
	}
	code := cmd.Run(ctx, cmd.Env{
		Args: []string{settings.Role, "--log-level", "error"}, Environ: settings.Environ, Stdout: io.Discard, Stderr: os.Stderr,
		Listening: func(addr string) { fmt.Println(addr) },
	})
	if code != 0 {
		return fmt.Errorf("%w: %s ended with %d", errChild, settings.Role, code)
	}
	return nil
}

// profileInto writes this process's CPU profile until done.
func profileInto(file string) (done func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = out.Close()
	}, nil
}

func childServer(name string, settings childSettings) (func(context.Context, net.Listener) error, error) {
	switch name {
	case childNoop:
		return func(ctx context.Context, ln net.Listener) error { return serveNoop(ctx, ln, settings) }, nil
	case childAPI:
		server, err := apiOver(settings)
		if err != nil {
			return nil, err
		}
		return server.Serve, nil
	default:
		return nil, fmt.Errorf("%w: %q", errChild, name)
	}
}

// serveNoop reads each body and sends a fixed reply: the upper
// bound of any net/http handler.
func serveNoop(ctx context.Context, ln net.Listener, settings childSettings) error {
	mux := http.NewServeMux()
	body := []byte(settings.Body)
	mux.HandleFunc("POST /v1/campaigns/{id}/claims", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), settings.Header)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// apiOver makes an API whose campaigns are already in Redis.
func apiOver(settings childSettings) (*api.Server, error) {
	rdb, err := redisconn.Connect(settings.RedisURL)
	if err != nil {
		return nil, err
	}
	scripts, err := lua.New(rdb, lua.Options{})
	if err != nil {
		return nil, err
	}
	return api.New(
		api.Config{Addr: "127.0.0.1:0", ClaimsPerCall: settings.ClaimsPerCall, ClaimsInFlight: settings.ClaimsInFlight, Tokens: settings.Tokens},
		api.Deps{
			Claimer: scripts, States: scripts, Shared: softstate.New(rdb, scripts), Loader: noBooks{}, Campaigns: noBooks{}, Books: noCounters{}, Claims: noBooks{}, Resolver: noBooks{}, Applied: noBooks{}, Audit: audit.NewLog(nil), Groups: retention.NewRegistry(nil, scripts, nil), Ledger: ledger.New(nil),
			Ready: func(ctx context.Context) error { return rdb.Ping(ctx).Err() },
		})
}

// noBooks is a MySQL without data.
type noBooks struct {
	operator.Campaigns
	claimed.Claims
	claimed.Resolver
}

func (noBooks) Load(context.Context, string) (lua.Meta, error) {
	return lua.Meta{}, models.ErrNotFound
}

func (n noBooks) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return n.Load(ctx, id)
}

// Get reports MySQL as down, so that Redis' data is trusted.
func (noBooks) Get(context.Context, string) (models.Campaign, error) {
	return models.Campaign{}, errChild
}

// noCounters is the same for the counters of many campaigns.
type noCounters struct{ live.Books }

// BooksOfAll reports it as well.
func (noCounters) BooksOfAll(context.Context, []string) (map[string]models.CampaignBooks, error) {
	return nil, errChild
}

// AwaitApplied has nothing to wait for.
func (noBooks) AwaitApplied(context.Context) error { return nil }

// Delete deletes nothing.
func (noBooks) Delete(context.Context, string) error { return errChild }
