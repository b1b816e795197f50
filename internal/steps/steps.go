// Package steps lets a test act between two steps of production code: stop it
// there, kill it, or change what it will find. Production code names its steps
// and nothing else.
package steps

import "sync/atomic"

// Steps is a field of whatever names its steps. The zero value is ready to use
// and does nothing. It must not be copied.
type Steps struct {
	observer atomic.Pointer[func(name string)]
}

// At says that the named step has been reached. It returns when the observer
// does, and at once without one.
func (s *Steps) At(name string) {
	if observe := s.observer.Load(); observe != nil {
		(*observe)(name)
	}
}

// Observe makes observe run at every step from now on, in the goroutine that
// reaches it; nil stops that. Only tests call it, through their package's
// export_test.go.
func (s *Steps) Observe(observe func(name string)) {
	if observe == nil {
		s.observer.Store(nil)
		return
	}
	s.observer.Store(&observe)
}
