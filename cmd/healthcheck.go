package cmd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dibs/api"
	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/internal/process"
)

const probeTimeout = 5 * time.Second

func newHealthcheck(env Env) *cobra.Command {
	var live bool
	c := command(env, cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the process of these settings whether it is well; exit 0 or 1",
		Long: `Ask the process that runs on this machine with the same settings whether it is up and can
do its work: /healthz and /readyz at DIBS_PROBE_ADDR, else at DIBS_METRICS_ADDR, else at
DIBS_HTTP_ADDR: the first that is set and where someone listens.

Exit code 0: it is well, or waits for servers that are away, which are named. 1: it is
not, or no one answers; what is wrong is said in a line.`,
		Example: "  dibs healthcheck\n  DIBS_METRICS_ADDR=127.0.0.1:9091 dibs healthcheck --live",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		paths := []string{"/healthz", "/readyz"}
		if live {
			paths = paths[:1]
		}
		var asked []string
		var failed error
		for _, addr := range []string{cfg.ProbeAddr, cfg.MetricsAddr, cfg.HTTPAddr} {
			if addr == "" {
				continue
			}
			away, err := probe(ctx, process.Certificate(cfg) != api.TLS{} && addr != cfg.ProbeAddr, addr, paths)
			if len(away) > 0 {
				printer.Printf(env.Stdout, "%s is up; away: %s\n", addr, strings.Join(away, ", "))
			}
			if _, noOne := errors.AsType[*net.OpError](err); !noOne {
				return err
			}
			asked = append(asked, addr)
			failed = err
		}
		return fmt.Errorf("cmd: no one answers at %s: start the process, or give this command the settings of the one that runs: %w",
			strings.Join(asked, " or "), failed)
	})
	c.Flags().BoolVar(&live, "live", false, "ask only whether it is up and its loops turn, not whether it can work now")
	return c
}

// probe requests each path and returns the unreachable servers. A
// failed probe's error has the answer.
func probe(ctx context.Context, secure bool, addr string, paths []string) (away []string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("cmd: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	base := "http://" + net.JoinHostPort(host, port)
	if secure {
		base = strings.Replace(base, "http", "https", 1)
	}
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{
		// nothing secret is sent, and the certificate names the service
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	for _, path := range paths {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return nil, fmt.Errorf("cmd: %w", err)
		}
		res, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("cmd: %w", err)
		}
		text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // a part is good enough
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("cmd: %s%s answers %s: %s", addr, path, res.Status, text)
		}
		var body struct {
			Away []string `json:"away"`
		}
		if json.Unmarshal(text, &body) == nil {
			away = append(away, body.Away...)
		}
	}
	return away, nil
}
