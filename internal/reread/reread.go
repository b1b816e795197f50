// Package reread keeps what is made of files up to date: it is made again when
// one of them changes, so that tokens, keys and certificates are replaced
// without a restart.
package reread

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// every is how often the files are checked, and only when someone asks.
const every = time.Second

// logEvery bounds the lines about files that can't be used.
const logEvery = time.Minute

// ErrPartly is wrapped by the error of a read whose value is to be used
// although some of the files could not be understood.
var ErrPartly = errors.New("reread: used but for what is wrong")

// Value is what is made of files.
type Value[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	now  atomic.Pointer[T]
	next atomic.Int64 // when to check the files again, in nanoseconds since 1970

	mu      sync.Mutex // held by who checks the files
	seen    []stamp
	partly  error // of the read that made the value that is in force
	logSome rate.Sometimes

	// since when the files can't be used as they are, in nanoseconds since
	// 1970; 0: they can
	failing atomic.Int64
}

// stamp is what can be seen of a file from outside. Kubernetes replaces a
// mounted file by another behind the same name.
type stamp struct {
	path string
	size int64
	at   time.Time
	file os.FileInfo
}

func (s stamp) same(as stamp) bool {
	return s.path == as.path && s.size == as.size && s.at.Equal(as.at) && os.SameFile(s.file, as.file)
}

// New makes a Value by read, which fails when the files can't be used. read is
// called again when one of them has changed; one that fails then is logged, and
// the Value stays unless the error wraps ErrPartly.
func New[T any](log *slog.Logger, read func() (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, read: read, log: log, logSome: rate.Sometimes{Interval: logEvery}}
	v.next.Store(time.Now().Add(every).UnixNano())
	return v, v.refresh()
}

// Get is the Value as the files are now, or were less than a second ago.
func (v *Value[T]) Get() T {
	if now := time.Now().UnixNano(); len(v.paths) > 0 && now >= v.next.Load() && v.mu.TryLock() {
		v.next.Store(now + every.Nanoseconds())
		v.mu.Unlock()
		if err := v.refresh(); err != nil {
			v.failing.CompareAndSwap(0, now)
			v.logSome.Do(func() {
				v.log.Error("a file changed and can't be used as it is: but for what could be read, what it said before stays in force",
					slog.Any("error", err))
			})
		} else {
			v.failing.Store(0)
		}
	}
	return *v.now.Load()
}

// Failing is for how long the files could not be used as they are; 0 when they
// can.
func (v *Value[T]) Failing() time.Duration {
	if since := v.failing.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}

func (v *Value[T]) refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	stamps, err := stat(v.paths) // before they are read: a change in between is seen the next time
	if err != nil {
		return err
	}
	if v.now.Load() != nil && slices.EqualFunc(stamps, v.seen, stamp.same) {
		return v.partly
	}
	made, err := v.read()
	if err != nil && !errors.Is(err, ErrPartly) {
		return err
	}
	if v.now.Swap(&made) != nil {
		v.log.Info("read again, as they changed", slog.Any("files", v.paths))
	}
	v.seen = stamps
	v.partly = err
	return err
}

func stat(paths []string) ([]stamp, error) {
	stamps := make([]stamp, len(paths))
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reread: %w", err)
		}
		stamps[i] = stamp{path: path, size: info.Size(), at: info.ModTime(), file: info}
	}
	return stamps, nil
}
