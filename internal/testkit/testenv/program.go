package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Program replaces the testing.TB of this package in a program
// that is no test. It keeps the cleanups and converts failures
// to errors. Methods of testing.TB missing here are not used.
type Program struct {
	testing.TB // nil

	ctx context.Context //nolint:containedctx // what a test would have

	mu    sync.Mutex
	clean []func()
	said  []error
}

// NewProgram makes a Program; its servers can start until ctx ends.
func NewProgram(ctx context.Context) *Program { return &Program{ctx: ctx} }

// ErrServer is wrapped by every failure of a Program.
var ErrServer = errors.New("testenv: a server")

// Helper does nothing: a Program reports no lines.
func (*Program) Helper() {}

// Name is the same for all programs.
func (*Program) Name() string { return "program" }

// Context returns the program's context.
func (p *Program) Context() context.Context { return p.ctx }

// Logf says nothing.
func (*Program) Logf(string, ...any) {}

// Fatalf aborts the function of Try.
func (p *Program) Fatalf(f string, args ...any) { p.Errorf(f, args...); p.FailNow() }

// Skip fails, too: what a machine lacks is an error of a program.
func (p *Program) Skip(args ...any) { p.Errorf("%s", fmt.Sprint(args...)); p.FailNow() }

// Cleanup registers fn for Close.
func (p *Program) Cleanup(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clean = append(p.clean, fn)
}

// Errorf adds to the error that Try returns.
func (p *Program) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Errorf("%w: "+format, append([]any{ErrServer}, args...)...))
}

type failed struct{}

// FailNow aborts the function of Try.
func (*Program) FailNow() { panic(failed{}) }

// TempDir makes a folder that Close removes.
func (p *Program) TempDir() string {
	dir, err := os.MkdirTemp("", "dibs-program-")
	if err != nil {
		p.Errorf("%v", err)
		p.FailNow()
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Try calls a function that uses this package, and returns its
// failures as an error.
func (p *Program) Try(fn func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(failed); !ours {
				panic(r)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		err = errors.Join(p.said...)
		p.said = nil
	}()
	fn()
	return nil
}

// Close runs the cleanups in reverse order.
func (p *Program) Close() error {
	p.mu.Lock()
	clean := p.clean
	p.clean = nil
	p.mu.Unlock()
	err := p.Try(func() {
		for _, fn := range slices.Backward(clean) {
			fn()
		}
	})
	return err
}
