package cmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"dibs/internal/config"
)

// service is `dibs serve` in a process of its own, so that a load does not share its runtime.
type service struct {
	url    string
	cmd    *exec.Cmd
	exited chan error // its end
}

// startWait bounds a start: servers may be away for a while.
const startWait = time.Minute

// stopSlack is added to the service's own time to stop before it is killed.
const stopSlack = 10 * time.Second

// startService starts this program as `dibs serve` with the same settings and waits until it listens.
func startService(ctx context.Context, env Env, flags *pflag.FlagSet, cfg *config.Config) (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cmd: %w", err)
	}
	child := exec.Command(self, "serve") //nolint:gosec,noctx // this program; stop ends it, after the campaign is closed
	child.Env = serviceEnviron(env.Environ, flags)
	log, err := child.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("cmd: %w", err)
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("cmd: start the service: %w", err)
	}
	s := &service{cmd: child, exited: make(chan error, 1)}
	listening := make(chan string, 1)
	go func() {
		readServiceLog(log, env.Stderr, listening)
		s.exited <- child.Wait() // after its log is read to the end, as Wait wants it
	}()
	select {
	case s.url = <-listening:
		return s, nil
	case err = <-s.exited:
		return nil, errors.Join(errors.New("cmd: the service ended before it listened"), err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startWait):
		err = errors.New("cmd: the service does not listen")
	}
	return nil, errors.Join(err, s.stop(cfg.ShutdownTimeout))
}

// stop ends the service and waits for it; it is killed when it takes much longer than it may.
func (s *service) stop(timeout time.Duration) error {
	_ = s.cmd.Process.Signal(os.Interrupt) // one that has ended is what we want
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("cmd: the service ended with %w", err)
		}
		return nil
	case <-time.After(timeout + stopSlack):
		_ = s.cmd.Process.Kill()
		<-s.exited //nolint:errcheck // that it was killed
		return errors.New("cmd: the service did not stop and was killed")
	}
}

// serviceEnviron hands settings that were given as flags on as variables, where other users can't read them.
func serviceEnviron(environ []string, flags *pflag.FlagSet) []string {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(known)
	set := func(name, value string) string {
		return config.Prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "=" + value
	}
	child := slices.Concat(environ, []string{set("http-addr", "127.0.0.1:0")})
	flags.Visit(func(f *pflag.Flag) {
		if known.Lookup(f.Name) != nil {
			child = append(child, set(f.Name, f.Value.String()))
		}
	})
	return append(child, set("log-level", "info"), set("log-format", "json"))
}

// readServiceLog reports the address and passes warnings and errors on. It returns when the service closes its log.
func readServiceLog(log io.Reader, warnings io.Writer, listening chan<- string) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
			URL   string `json:"url"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		switch {
		case err == nil && line.Msg == "listening" && line.URL != "":
			select {
			case listening <- line.URL:
			default:
			}
		case err != nil || line.Level == "WARN" || line.Level == "ERROR":
			_, _ = fmt.Fprintln(warnings, "service: "+lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, log) // a line too long for the scanner must not block the service
}
