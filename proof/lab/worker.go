package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// WorkerCommand is the hidden command under which this program is a worker.
const WorkerCommand = "lab-worker"

// errNotOpen says that a worker was told to load what it has not opened.
var errNotOpen = errors.New("lab: worker has no strategy")

// worker is a process full of claimers.
type worker struct {
	opening  opening
	strategy Strategy
	close    func()
}

// Work is what a worker process does: it follows the orders on in and answers each on out, until in ends.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{close: func() {}}
	defer func() { w.close() }()
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lab: orders: %w", err)
		}
		answer, err := line(w.follow(ctx, text))
		if err != nil {
			return fmt.Errorf("lab: answer: %w", err)
		}
		if _, err := out.Write(answer); err != nil {
			return fmt.Errorf("lab: answer: %w", err)
		}
	}
}

func (w *worker) follow(ctx context.Context, text []byte) done {
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return done{Error: err.Error()}
	}
	if o.Open != nil {
		if err := w.open(*o.Open); err != nil {
			return done{Error: err.Error()}
		}
	}
	if o.Load == nil {
		return done{}
	}
	if w.strategy == nil {
		return done{Error: errNotOpen.Error()}
	}
	d, err := newCrowd(w.opening, w.strategy, *o.Load).run(ctx)
	if err != nil {
		return done{Error: err.Error()}
	}
	return d
}

// open makes the Strategy; one that was open is closed first.
func (w *worker) open(o opening) error {
	w.close()
	w.close = func() {}
	w.strategy = nil
	entry, ok := StrategyNamed(o.Strategy)
	if !ok {
		return fmt.Errorf("%w: no strategy %q", ErrConfig, o.Strategy)
	}
	env, closeEnv, err := openEnv(o.Place, o.Claimers, o.SQLPool)
	if err != nil {
		return err
	}
	env.Campaign = o.Campaign
	env.Patience = o.Patience
	orDefault(&o.Lease, env.Lease)
	orDefault(&o.Retry, env.RetryPause)
	env.Lease = o.Lease
	env.RetryPause = o.Retry
	if o.DieAt != "" {
		env.At = dieAt(o.DieAt)
	}
	strategy, err := entry.New(env)
	if err != nil {
		closeEnv()
		return err
	}
	w.opening = o
	w.strategy = strategy
	w.close = func() {
		_ = strategy.Close() // the process is about to end, or to open another
		closeEnv()
	}
	return nil
}

// dieAt kills this process at a step, as kill -9 would.
func dieAt(at Step) func(Step) error {
	return func(step Step) error {
		if step != at {
			return nil
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			return fmt.Errorf("lab: could not die: %w", err)
		}
		select {} // until the signal comes
	}
}
