package lab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"dibs/internal/testenv"
)

// Self makes a command that runs this program once more, with other arguments.
type Self func(args ...string) *exec.Cmd

// process is a child process and what it says.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// saidMax bounds what is kept of a child's output, in bytes.
const saidMax = 8 << 10

// startProcess starts a command that ends with this process.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	cmd.Stderr = p
	if err := testenv.Spawn(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("lab: start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in what it said
		close(p.ended)
	}()
	return p, nil
}

// Write keeps the end of what the process says.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	if extra := p.out.Len() - saidMax; extra > 0 {
		p.out.Next(extra)
	}
	return len(b), nil
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(p.out.String())
}

// stop asks the process to end, and makes it end when it takes too long.
func (p *process) stop(within time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(within):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("lab: %s did not end within %s: %s", p.cmd.Path, within, p.said()) //nolint:err113 // reported, not handled
	}
}
