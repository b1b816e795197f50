// Package steps lets a test act between two steps of production
// code: stop it, kill it, or change what it finds next.
// Production code only names its steps.
package steps

import "sync/atomic"

// Steps is a field of a type with named steps. The zero value
// does nothing. It must not be copied.
type Steps struct {
	observer atomic.Pointer[func(name string)]
}

// At reports that a step was reached. It returns once the
// observer does, or at once without one.
func (s *Steps) At(name string) {
	if observe := s.observer.Load(); observe != nil {
		(*observe)(name)
	}
}

// Observe runs observe at every later step, in the step's goroutine; nil
// stops that. Only tests call it, through export_test.go.
func (s *Steps) Observe(observe func(name string)) {
	if observe == nil {
		s.observer.Store(nil)
		return
	}
	s.observer.Store(&observe)
}
