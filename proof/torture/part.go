package torture

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"dibs/internal/testkit/machine"
)

// part is a Dibs process that is restarted whenever it ends, as
// by an orchestrator.
type part struct {
	kind, name string
	binary     string
	env        []string
	url, probe string
	log        string // output of all its runs

	toRedis, toSQL, front *toxiproxy.Proxy // its connections; nil: none to act on
	// of front, which changes its own copy on a restart
	frontURL string

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the run has ended
	down     time.Time     // not restarted before
	exits    []string      // crashes and unexpected ends
	isEnding bool          // it was signalled to end
	ready    readiness     // of an API
	leave    chan struct{}
	left     chan struct{}
}

// startAgain is the delay before a restart.
const startAgain = 100 * time.Millisecond

// keep starts the process and restarts it whenever it ends, until end.
func (p *part) keep() error {
	p.leave = make(chan struct{})
	p.left = make(chan struct{})
	if err := p.start(); err != nil {
		return err
	}
	go func() {
		defer close(p.left)
		for {
			p.mu.Lock()
			exited := p.exited
			wait := time.Until(p.down)
			p.mu.Unlock()
			select {
			case <-p.leave:
				return
			case <-exited:
			}
			p.note()
			select {
			case <-p.leave:
				return
			case <-time.After(max(startAgain, wait, time.Until(p.downTill()))):
			}
			_ = p.start() // a failed start shows as a process that never answers
		}
	}()
	return nil
}

func (p *part) downTill() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// note records a run that crashed or ended unexpectedly.
func (p *part) note() {
	p.mu.Lock()
	defer p.mu.Unlock()
	tail := p.tail()
	crashed := strings.Contains(tail, "panic: ") || strings.Contains(tail, "fatal error: ") || strings.Contains(tail, "DATA RACE")
	if !p.isEnding || crashed {
		p.exits = append(p.exits, fmt.Sprintf("%s ended by itself (%s): %s", p.name, p.cmd.ProcessState, tail))
	}
}

func (p *part) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	defer func() { _ = out.Close() }()    // the process has its own
	cmd := exec.Command(p.binary, p.kind) //nolint:gosec,noctx // a dibs; end ends it
	p.mu.Lock()
	cmd.Env = slices.Clone(p.env)
	p.mu.Unlock()
	cmd.Stdout = out
	cmd.Stderr = out
	if err := machine.Spawn(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("torture: start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(exited)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = cmd
	p.exited = exited
	p.isEnding = false
	return nil
}

// kill ends the process like a crash; it is restarted after that time.
func (p *part) kill(dead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = time.Now().Add(dead)
	p.isEnding = true
	_ = p.cmd.Process.Kill() // it may have ended
}

// signal sends SIGSTOP, SIGCONT or SIGTERM.
func (p *part) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isEnding = p.isEnding || ends(sig)
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

// set sets an environment variable, NAME=value, for its next run.
func (p *part) set(variable string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.env = append(p.env, variable)
}

const stopWithin = 8 * time.Second

// end ends the process permanently, and kills it if it does not stop in time.
func (p *part) end(within time.Duration) {
	close(p.leave)
	<-p.left
	if within > 0 {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			p.note()
		case <-time.After(within):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *part) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+p.probe, http.NoBody)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// awaitUp waits until the process answers.
func (p *part) awaitUp(ctx context.Context, within time.Duration) error {
	for deadline := time.Now().Add(within); !p.answers(ctx); wait(ctx, 20*time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%w: %s does not answer within %s:\n%s", errBroken, p.name, within, p.tail())
		}
	}
	return nil
}

const tailMax = 4000

func (p *part) tail() string {
	text, _ := os.ReadFile(p.log)
	if len(text) > tailMax {
		text = text[len(text)-tailMax:]
	}
	return strings.TrimSpace(string(text))
}
