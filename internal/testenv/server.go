package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Time limits of servers, generous because test machines are busy.
const (
	startTimeout  = 90 * time.Second
	stopTimeout   = 30 * time.Second
	probeTimeout  = 2 * time.Second
	probeInterval = 10 * time.Millisecond
	logTailBytes  = 2000
)

// errNotRunning means that the server was stopped or killed.
var errNotRunning = errors.New("testenv: the server is not running")

// host runs a server: as a local process, or in a container.
type host interface {
	// command returns a new command that runs the server in the foreground.
	command() *exec.Cmd
	// signal sends a signal to command's server.
	signal(running *os.Process, sig syscall.Signal) error
	// onParentDeath is sent to the command when the test binary is killed.
	onParentDeath() syscall.Signal
	// remove deletes what outlives the command.
	remove()
}

// server can be started, killed and restarted on the same data and port.
type server struct {
	name  string // for messages
	host  host
	log   string // its output since the first start
	probe func(ctx context.Context) error

	mu      sync.Mutex
	running *os.Process   // nil when stopped
	exited  chan struct{} // closed when running has ended
}

// start runs the server and returns once its probe succeeds.
func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return fmt.Errorf("testenv: %s is running already", s.name)
	}
	if err := s.spawn(); err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.name, err)
	}
	if err := s.awaitReady(); err != nil {
		_ = s.end(syscall.SIGKILL)
		return fmt.Errorf("testenv: start %s: %w\n%s", s.name, err, s.logTail())
	}
	return nil
}

func (s *server) spawn() error {
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	cmd := s.host.command()
	cmd.Stdout = out
	cmd.Stderr = out
	if err := Spawn(cmd, s.host.onParentDeath()); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	s.running = cmd.Process
	s.exited = exited
	return nil
}

func (s *server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := s.probeOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

func (s *server) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.probe(ctx)
}

func (s *server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return fmt.Errorf("%w: %s", errNotRunning, s.name)
	}
	return s.host.signal(s.running, sig)
}

// stop ends the server by sig and waits for its end: SIGKILL for
// a crash, SIGTERM for a clean end.
func (s *server) stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return fmt.Errorf("%w: %s", errNotRunning, s.name)
	}
	return s.end(sig)
}

// end requires s.mu and a running server.
func (s *server) end(sig syscall.Signal) error {
	err := s.host.signal(s.running, sig)
	select {
	case <-s.exited:
		s.running = nil
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("testenv: %s did not end within %v", s.name, stopTimeout), err)
	}
}

// close ends the server permanently, in any state.
func (s *server) close() error {
	err := s.stop(syscall.SIGKILL)
	s.host.remove()
	if errors.Is(err, errNotRunning) {
		return nil
	}
	return err
}

func (s *server) logTail() string {
	text, _ := os.ReadFile(s.log)
	if len(text) > logTailBytes {
		text = text[len(text)-logTailBytes:]
	}
	return string(bytes.TrimSpace(text))
}

func (s *server) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil
}

// hasEnded reports whether the server ended by itself.
func (s *server) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return false
	}
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}
