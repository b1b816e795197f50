package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ErrDibs means that Dibs sent a reply that the lab did not expect.
var ErrDibs = errors.New("lab: unexpected answer of dibs")

// dibsHTTP uses Dibs like a storefront: `dibs serve` in its own
// process, one claim per request.
//
// It has one kept-alive connection per claimer, without net/http's client:
// that uses as much CPU as Dibs' reply, and on one machine takes it from the
// servers. A storefront's client runs on another machine.
type dibsHTTP struct {
	Env

	host string
	idle chan *httpConn // a nil entry is yet to be dialled
	asks atomic.Uint64
}

type httpConn struct {
	net.Conn

	in  *bufio.Reader
	out []byte
}

func newDibsHTTP(env Env) (Strategy, error) { return openDibs(env) }

func openDibs(env Env) (*dibsHTTP, error) {
	u, err := url.Parse(env.Endpoint)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%w: endpoint %q", ErrConfig, env.Endpoint)
	}
	s := &dibsHTTP{Env: env, host: u.Host, idle: make(chan *httpConn, max(env.Connections, 1))}
	for range cap(s.idle) {
		s.idle <- nil
	}
	return s, nil
}

// Prepare creates the campaign. The lab's ids and users are
// letters and digits.
func (s *dibsHTTP) Prepare(ctx context.Context) error {
	status, answer, err := s.do(ctx, "POST", "/v1/campaigns", fmt.Sprintf(
		`{"id":"%s","kind":"coupon","total":%d,"per_user":1}`, s.Campaign.ID, s.Campaign.Units))
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("%w: %d: %s", ErrDibs, status, answer)
	}
	return err
}

// Claim posts one claim with its own key.
func (s *dibsHTTP) Claim(ctx context.Context, user string) (Outcome, error) {
	path := "/v1/campaigns/" + s.Campaign.ID + "/claims"
	status, answer, err := s.do(ctx, "POST", path, `{"user_id":"`+user+`"}`)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusCreated:
		return Claimed, s.at(StepWritten)
	default:
		return refusalOf(status, answer)
	}
}

func refusalOf(status int, answer []byte) (Outcome, error) {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(answer, &problem) // anything else has no code
	switch problem.Code {
	case "sold_out":
		return SoldOut, nil
	case "user_limit":
		return OverLimit, nil
	case "unavailable":
		return Busy, nil
	default:
		return "", fmt.Errorf("%w: %d: %.200s", ErrDibs, status, answer)
	}
}

// Settle waits until MySQL has every claim.
func (s *dibsHTTP) Settle(ctx context.Context) error {
	return settle(ctx, func(ctx context.Context) (bool, error) {
		var stock struct {
			Backlog *int64 `json:"backlog"`
		}
		status, answer, err := s.do(ctx, "GET", "/v1/campaigns/"+s.Campaign.ID+"/stock", "")
		if err == nil && (json.Unmarshal(answer, &stock) != nil || stock.Backlog == nil) {
			err = fmt.Errorf("%w: %d: %s", ErrDibs, status, answer)
		}
		return err == nil && *stock.Backlog == 0, err
	})
}

// do sends a request over an idle connection. After a failure
// the next request dials again.
func (s *dibsHTTP) do(ctx context.Context, method, path, body string) (status int, answer []byte, err error) {
	c := <-s.idle
	keep := false
	defer func() {
		if c != nil && !keep {
			_ = c.Close()
			c = nil
		}
		s.idle <- c
	}()
	if c == nil {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", s.host)
		if err != nil {
			return 0, nil, err
		}
		c = &httpConn{Conn: conn, in: bufio.NewReader(conn)}
	}
	c.out = fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Idempotency-Key: %d-%d\r\nContent-Length: %d\r\n\r\n%s",
		method, path, s.host, os.Getpid(), s.asks.Add(1), len(body), body)
	_ = c.SetDeadline(time.Now().Add(ioTimeout)) // a closed connection fails at the write
	if _, err := c.Write(c.out); err != nil {
		return 0, nil, err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(res.Body)
	keep = err == nil && !res.Close
	return res.StatusCode, answer, errors.Join(err, res.Body.Close())
}

// Close closes the connections.
func (s *dibsHTTP) Close() error {
	for range cap(s.idle) {
		if c := <-s.idle; c != nil {
			_ = c.Close()
		}
	}
	return nil
}

// errNoServe means that `dibs serve` did not start.
var errNoServe = errors.New("lab: dibs serve did not start")

// serveDibs starts `dibs serve` on the lab's servers and waits
// until it is ready.
func serveDibs(ctx context.Context, env Env) (endpoint string, stop func() error, err error) {
	if err := migrate(ctx, env); err != nil {
		return "", nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("lab: no free port: %w", err)
	}
	addr := l.Addr().String()
	endpoint = "http://" + addr
	_ = l.Close()
	cmd := env.Self("serve")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "DIBS_") })
	cmd.Env = append(cmd.Env, "DIBS_REDIS_URL="+env.RedisURL, "DIBS_MYSQL_DSN="+env.MySQLDSN,
		"DIBS_HTTP_ADDR="+addr, "DIBS_LOG_LEVEL=error", "DIBS_GROUPS=syncer")
	p, err := startProcess(cmd)
	if err != nil {
		return "", nil, err
	}
	stop = func() error { return p.stop(stopMax) }
	if err := p.awaitReady(ctx, endpoint); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return endpoint, stop, nil
}

// awaitReady waits until the service at base is ready, or the process ends.
func (p *process) awaitReady(ctx context.Context, base string) error {
	asker, err := openDibs(Env{Servers: Servers{Endpoint: base}})
	if err != nil {
		return err
	}
	defer func() { _ = asker.Close() }()
	err = settle(ctx, func(ctx context.Context) (bool, error) {
		status, _, err := asker.do(ctx, "GET", "/readyz", "")
		select {
		case <-p.ended:
			return false, errNoServe
		default:
			return err == nil && status == http.StatusOK, nil
		}
	})
	if err != nil {
		err = fmt.Errorf("%w: %w: %s", errNoServe, err, &p.said)
	}
	return err
}
