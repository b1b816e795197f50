package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// errWorker says that a worker ended or could not follow.
var errWorker = errors.New("lab: a worker failed")

// pool is the worker processes of one strategy in one round.
type pool []*member

// member is one worker process, seen from here.
type member struct {
	process *process
	in      io.WriteCloser
	answers *bufio.Reader
}

// startPool starts n workers.
func startPool(self Self, n int) (pool, error) {
	var c pool
	for range n {
		h, err := startWorker(self)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c = append(c, h)
	}
	return c, nil
}

func startWorker(self Self) (*member, error) {
	cmd := self(WorkerCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("lab: worker: %w", err)
	}
	read, write := io.Pipe()
	cmd.Stdout = write
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.ended
		_ = write.Close()
	}()
	return &member{process: p, in: in, answers: bufio.NewReader(read)}, nil
}

// stop ends all workers, each after the order it is at.
func (c pool) stop() error {
	var errs []error
	for _, h := range c {
		_ = h.in.Close()
	}
	for _, h := range c {
		select {
		case <-h.process.ended:
		case <-time.After(stopMax):
			errs = append(errs, h.process.stop(time.Second))
		}
	}
	return errors.Join(errs...)
}

// send gives each worker an order, at the same time, and returns their answers.
func (c pool) send(ctx context.Context, orderOf func(i int) order) ([]done, error) {
	answers := make([]done, len(c))
	stopped := context.AfterFunc(ctx, func() { c.kill() })
	defer stopped()
	var all errgroup.Group
	for i, h := range c {
		all.Go(func() (err error) {
			answers[i], err = h.send(orderOf(i))
			return err
		})
	}
	err := all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answers, err
}

func (c pool) kill() {
	for _, h := range c {
		_ = h.process.cmd.Process.Kill() // it may have ended
	}
}

func (h *member) send(o order) (done, error) {
	text, err := line(o)
	if err != nil {
		return done{}, fmt.Errorf("lab: order: %w", err)
	}
	if _, err := h.in.Write(text); err != nil {
		return done{}, fmt.Errorf("%w: %w: %s", errWorker, err, h.process.said())
	}
	answer, err := h.answers.ReadBytes('\n')
	if err != nil {
		return done{}, fmt.Errorf("%w: %w: %s", errWorker, err, h.process.said())
	}
	var d done
	if err := json.Unmarshal(answer, &d); err != nil {
		return done{}, fmt.Errorf("%w: it said %.200q", errWorker, answer)
	}
	if d.Error != "" {
		return done{}, fmt.Errorf("%w: %s", errWorker, d.Error)
	}
	return d, nil
}
