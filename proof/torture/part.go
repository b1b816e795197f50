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

	"dibs/internal/testenv"
)

// part is a process of Dibs that is started again whenever it ends, as an
// orchestrator does.
type part struct {
	kind, name string
	binary     string
	env        []string
	url, probe string
	log        string // file with the output of all its lives

	toRedis, toSQL, front *toxiproxy.Proxy // the wires to it; nil: there is none to act on
	// of front, which changes its own copy when it starts again
	frontURL string

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the life is over
	down     time.Time     // not started again before
	exits    []string      // crashes, and ends that no one had asked for
	isEnding bool          // it was signalled to end
	ready    readiness     // of an API
	leave    chan struct{}
	left     chan struct{}
}

// startAgain is how long a process that ended by itself is waited with.
const startAgain = 100 * time.Millisecond

// keep starts the process and starts it again whenever it ends, until end.
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
			_ = p.start() // what keeps it from starting shows as a process that never answers
		}
	}()
	return nil
}

func (p *part) downTill() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// note remembers a life that ended by itself, or in a crash.
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
	if err := testenv.Spawn(cmd, syscall.SIGKILL); err != nil {
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

// kill ends the process as a crash would; it is started again after that long.
func (p *part) kill(dead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = time.Now().Add(dead)
	p.isEnding = true
	_ = p.cmd.Process.Kill() // it may have ended
}

// signal is for SIGSTOP, SIGCONT and SIGTERM.
func (p *part) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isEnding = p.isEnding || ends(sig)
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

// set sets a variable of its environment, NAME=value, for its next life.
func (p *part) set(variable string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.env = append(p.env, variable)
}

// stopWithin is how long a process may take to stop.
const stopWithin = 8 * time.Second

// end ends the process for good. It is killed if it has not stopped by itself
// within so long.
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

// answers reports whether the process is up.
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

// awaitUp returns when the process answers.
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
