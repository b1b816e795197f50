package machine

import (
	"slices"
	"sync"
)

// ends are what ends with the test binary.
var ends struct {
	mu  sync.Mutex
	fns []func()
}

// AtEnd has End call fn.
func AtEnd(fn func()) {
	ends.mu.Lock()
	defer ends.mu.Unlock()
	ends.fns = append(ends.fns, fn)
}

// End ends what lives as long as the test binary, the youngest first.
func End() {
	ends.mu.Lock()
	fns := ends.fns
	ends.fns = nil
	ends.mu.Unlock()
	for _, fn := range slices.Backward(fns) {
		fn()
	}
}
