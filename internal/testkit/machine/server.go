package machine

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
	StartTimeout  = 90 * time.Second
	stopTimeout   = 30 * time.Second
	ProbeTimeout  = 2 * time.Second
	ProbeInterval = 10 * time.Millisecond
	logTailBytes  = 2000
)

// errNotRunning means that the server was stopped or killed.
var errNotRunning = errors.New("machine: the server is not running")

// Host runs a server: as a local process, or in a container.
type Host interface {
	// command returns a new command that runs the server in the foreground.
	command() *exec.Cmd
	// signal sends a signal to command's server.
	signal(running *os.Process, sig syscall.Signal) error
	// onParentDeath is sent to the command when the test binary is killed.
	onParentDeath() syscall.Signal
	// remove deletes what outlives the command.
	remove()
}

// Server can be started, killed and restarted on the same data and port.
type Server struct {
	Name  string // for messages
	Host  Host
	Log   string // its output since the first start
	Probe func(ctx context.Context) error

	mu      sync.Mutex
	running *os.Process   // nil when stopped
	exited  chan struct{} // closed when running has ended
}

// Start runs the server and returns once its probe succeeds.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return fmt.Errorf("machine: %s is running already", s.Name)
	}
	if err := s.spawn(); err != nil {
		return fmt.Errorf("machine: start %s: %w", s.Name, err)
	}
	if err := s.awaitReady(); err != nil {
		_ = s.end(syscall.SIGKILL)
		return fmt.Errorf("machine: start %s: %w\n%s", s.Name, err, s.logTail())
	}
	return nil
}

func (s *Server) spawn() error {
	out, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	cmd := s.Host.command()
	cmd.Stdout = out
	cmd.Stderr = out
	if err := Spawn(cmd, s.Host.onParentDeath()); err != nil {
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

func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	tick := time.NewTicker(ProbeInterval)
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
			return fmt.Errorf("no answer within %v: %w", StartTimeout, err)
		case <-tick.C:
		}
	}
}

func (s *Server) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	return s.Probe(ctx)
}

// Signal sends a signal, such as SIGSTOP.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return fmt.Errorf("%w: %s", errNotRunning, s.Name)
	}
	return s.Host.signal(s.running, sig)
}

// Stop ends the server by sig and waits for its end: SIGKILL for
// a crash, SIGTERM for a clean end.
func (s *Server) Stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return fmt.Errorf("%w: %s", errNotRunning, s.Name)
	}
	return s.end(sig)
}

// end requires s.mu and a running server.
func (s *Server) end(sig syscall.Signal) error {
	err := s.Host.signal(s.running, sig)
	select {
	case <-s.exited:
		s.running = nil
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("machine: %s did not end within %v", s.Name, stopTimeout), err)
	}
}

// Close ends the server permanently, in any state.
func (s *Server) Close() error {
	err := s.Stop(syscall.SIGKILL)
	s.Host.remove()
	if errors.Is(err, errNotRunning) {
		return nil
	}
	return err
}

func (s *Server) logTail() string {
	text, _ := os.ReadFile(s.Log)
	if len(text) > logTailBytes {
		text = text[len(text)-logTailBytes:]
	}
	return string(bytes.TrimSpace(text))
}

// IsRunning is false before Start, and after Stop.
func (s *Server) IsRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil
}

// HasEnded reports whether the server ended by itself.
func (s *Server) HasEnded() bool {
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
