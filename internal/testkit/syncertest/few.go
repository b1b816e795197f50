package syncertest

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Few plays a property n times, where a rapid.Check would take too long.
func Few(t *testing.T, n int, property func(rt *rapid.T)) {
	t.Helper()
	for seed := range n {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			choices := make([]byte, 1<<18)
			_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(choices)
			rapid.MakeFuzz(property)(t, choices)
		})
	}
}
