package apitest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadline is how long a test waits for what must happen. A busy machine takes
// seconds.
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

// Result is the result of f, which must return.
func Result[T any](t testing.TB, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	return Receive(t, done)
}

// Wait waits for f, which must return.
func Wait(t testing.TB, f func()) {
	t.Helper()
	Result(t, func() struct{} { f(); return struct{}{} })
}
