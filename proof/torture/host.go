package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"dibs/internal/testenv"
)

// host stands where internal/testenv expects a test: it keeps what is to be cleaned up, and turns a failure into an error. Methods of
// testing.TB that are not here are not used by testenv.
type host struct {
	testing.TB // nil

	ctx context.Context //nolint:containedctx // what a test would have

	mu    sync.Mutex
	clean []func()
	said  []error
}

// errHost is wrapped by what testenv reports.
var errHost = errors.New("torture: a server")

func (*host) Helper()                        {}
func (*host) Name() string                   { return "torture" }
func (h *host) Context() context.Context     { return h.ctx }
func (*host) Logf(string, ...any)            {}
func (h *host) Fatalf(f string, args ...any) { h.Errorf(f, args...); h.FailNow() }

func (h *host) Skip(args ...any) { h.Errorf("%s", fmt.Sprint(args...)); h.FailNow() }

func (h *host) Cleanup(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clean = append(h.clean, fn)
}

func (h *host) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Errorf("%w: "+format, append([]any{errHost}, args...)...))
}

// failed is what FailNow panics with, for try.
type failed struct{}

func (*host) FailNow() { panic(failed{}) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "dibs-torture-")
	if err != nil {
		h.Errorf("%v", err)
		h.FailNow()
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// try calls what uses testenv, and returns what it reported as an error.
func (h *host) try(fn func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(failed); !ours {
				panic(r)
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		err = errors.Join(h.said...)
		h.said = nil
	}()
	fn()
	return nil
}

// close cleans up, last first.
func (h *host) close() error {
	h.mu.Lock()
	clean := h.clean
	h.clean = nil
	h.mu.Unlock()
	err := h.try(func() {
		for _, fn := range slices.Backward(clean) {
			fn()
		}
	})
	return err
}

// Close removes the folder that all runs of this process share. Call it once, behind the last.
func Close() { testenv.Close() }
