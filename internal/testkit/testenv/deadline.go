package testenv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadline limits every wait of a test. A busy machine takes seconds.
const deadline = 30 * time.Second

// Receive receives a value, or fails the test.
func Receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(deadline):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// Send sends a value, or fails the test.
func Send[T any](t testing.TB, to chan<- T, v T) {
	t.Helper()
	select {
	case to <- v:
	case <-time.After(deadline):
		require.FailNow(t, "no one took it")
	}
}

// Result returns f's result, within the deadline.
func Result[T any](t testing.TB, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	return Receive(t, done)
}

// Wait runs f, which must return within the deadline.
func Wait(t testing.TB, f func()) {
	t.Helper()
	Result(t, func() struct{} { f(); return struct{}{} })
}
