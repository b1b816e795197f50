// Package reread keeps values made from files up to date. It
// rereads changed files, so that tokens, keys and certificates
// can be replaced without a restart.
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

// every is how often files are checked, on use only.
const every = time.Second

// logEvery limits log lines about unusable files.
const logEvery = time.Minute

// ErrPartly is wrapped by the error of a read whose value is
// usable although some files were not.
var ErrPartly = errors.New("reread: used but for what is wrong")

// Value is made from files.
type Value[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	now  atomic.Pointer[T]
	next atomic.Int64 // time of the next check, in nanoseconds since 1970

	mu      sync.Mutex // held while checking the files
	seen    []stamp
	partly  error // of the read that made the current value
	logSome rate.Sometimes

	// since when the files are unusable, in nanoseconds since 1970;
	// 0: they are usable
	failing atomic.Int64
}

// stamp identifies a file's content without reading it. Kubernetes replaces a
// mounted file by another of the same name.
type stamp struct {
	path string
	size int64
	at   time.Time
	file os.FileInfo
}

func (s stamp) same(as stamp) bool {
	return s.path == as.path && s.size == as.size && s.at.Equal(as.at) && os.SameFile(s.file, as.file)
}

// New makes a Value by read, and calls read again when a file
// has changed. A failure of a later read is logged and the Value
// stays, unless the error wraps ErrPartly.
func New[T any](log *slog.Logger, read func() (T, error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, read: read, log: log, logSome: rate.Sometimes{Interval: logEvery}}
	v.next.Store(time.Now().Add(every).UnixNano())
	return v, v.refresh()
}

// Get returns the Value of the files, at most a second old.
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

// Failing is how long the files have been unusable; 0 if usable.
func (v *Value[T]) Failing() time.Duration {
	if since := v.failing.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}

func (v *Value[T]) refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	stamps, err := stat(v.paths) // before reading: a change in between is found at the next check
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
