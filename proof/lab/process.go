package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// Self makes a command that runs this program with other arguments.
type Self func(args ...string) *exec.Cmd

const stopMax = 20 * time.Second

type process struct {
	cmd   *exec.Cmd
	said  testenv.Buffer
	ended chan struct{}
}

// startProcess starts a command that ends with this process.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.said
	}
	cmd.Stderr = &p.said
	if err := machine.Spawn(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("lab: start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		close(p.ended)
	}()
	return p, nil
}

// stop asks the process to end, and kills it after a time.
func (p *process) stop(within time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(within):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("lab: %s did not end within %s: %s", p.cmd.Path, within, &p.said)
	}
}

// Errors of a worker process.
var (
	errWorker = errors.New("lab: a worker failed")
	errKilled = errors.New("lab: a worker was killed")
)

// work runs these orders in concurrent worker processes and
// returns their answers.
func work(ctx context.Context, self Self, orders ...order) ([]done, error) {
	answers := make([]done, len(orders))
	all, ctx := errgroup.WithContext(ctx)
	for i, o := range orders {
		all.Go(func() error { return workOne(ctx, self(WorkerCommand), o, &answers[i]) })
	}
	return answers, all.Wait()
}

func workOne(ctx context.Context, cmd *exec.Cmd, o order, d *done) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("lab: order: %w", err)
	}
	var out bytes.Buffer
	cmd.Stdin = bytes.NewReader(text)
	cmd.Stdout = &out
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stopped()
	<-p.ended
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cmd.ProcessState.ExitCode() == -1: // by a signal
		return errKilled
	case !cmd.ProcessState.Success():
		return fmt.Errorf("%w: %s", errWorker, &p.said)
	default:
		return json.Unmarshal(out.Bytes(), d)
	}
}
