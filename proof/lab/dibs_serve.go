package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// errNoServe says that `dibs serve` did not come up.
var errNoServe = errors.New("lab: dibs serve did not start")

const (
	readyPoll = 20 * time.Millisecond
	readyMax  = 30 * time.Second
	stopMax   = 20 * time.Second
)

// serveDibsHTTP starts `dibs serve` on the lab's servers and returns when it is ready.
func serveDibsHTTP(ctx context.Context, env Env) (Service, error) {
	if env.Self == nil {
		return Service{}, fmt.Errorf("%w: no program to start", ErrConfig)
	}
	if err := migrate(ctx, env.MySQLDSN); err != nil {
		return Service{}, err
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return Service{}, err
	}
	cmd := env.Self("serve")
	cmd.Env = append(withoutDibs(os.Environ()),
		"DIBS_REDIS_URL="+env.RedisURL, "DIBS_MYSQL_DSN="+env.MySQLDSN, "DIBS_HTTP_ADDR="+addr, "DIBS_LOG_LEVEL=error", "DIBS_GROUPS=syncer")
	p, err := startProcess(cmd)
	if err != nil {
		return Service{}, err
	}
	service := Service{Endpoint: "http://" + addr, Stop: func(context.Context) error { return p.stop(stopMax) }}
	if err := awaitReady(ctx, service.Endpoint, p); err != nil {
		return Service{}, errors.Join(err, p.stop(stopMax))
	}
	return service, nil
}

// withoutDibs leaves out the user's own settings of Dibs: the lab's service is the lab's.
func withoutDibs(environ []string) []string {
	var kept []string
	for _, pair := range environ {
		if !strings.HasPrefix(pair, "DIBS_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// freeAddr finds an address of this machine that no one listens on.
func freeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("lab: no free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func awaitReady(ctx context.Context, base string, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", errNoServe, p.said())
		case <-p.ended:
			return fmt.Errorf("%w: %s", errNoServe, p.said())
		case <-time.After(readyPoll):
		}
	}
}
