package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Service is `dibs serve` in its own process, so that the load
// has a separate runtime.
type Service struct {
	URL    string
	cmd    *exec.Cmd
	exited chan error // its end
}

// startWait limits a start: servers may be down for a while.
const startWait = time.Minute

// stopSlack is added to the service's own stop time before it is killed.
const stopSlack = 10 * time.Second

// StartService starts this program as `dibs serve` with these
// variables, which must select JSON logs, and waits until it
// listens. Its warnings go to warnings.
func StartService(ctx context.Context, environ []string, warnings io.Writer, stopTimeout time.Duration) (*Service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	child := exec.Command(self, "serve") //nolint:gosec,noctx // this program; Stop ends it, after the campaign is closed
	child.Env = environ
	log, err := child.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("load: start the service: %w", err)
	}
	s := &Service{cmd: child, exited: make(chan error, 1)}
	listening := make(chan string, 1)
	go func() {
		readServiceLog(log, warnings, listening)
		s.exited <- child.Wait() // after its log is read to the end, as Wait requires
	}()
	select {
	case s.URL = <-listening:
		return s, nil
	case err = <-s.exited:
		return nil, errors.Join(errors.New("load: the service ended before it listened"), err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startWait):
		err = errors.New("load: the service does not listen")
	}
	return nil, errors.Join(err, s.Stop(stopTimeout))
}

// Stop ends the service and waits; it kills one that takes far too long.
func (s *Service) Stop(timeout time.Duration) error {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("load: the service ended with %w", err)
		}
		return nil
	case <-time.After(timeout + stopSlack):
		_ = s.cmd.Process.Kill()
		<-s.exited //nolint:errcheck // that it was killed
		return errors.New("load: the service did not stop and was killed")
	}
}

// readServiceLog reports the address and forwards warnings and
// errors. It returns when the service closes its log.
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
