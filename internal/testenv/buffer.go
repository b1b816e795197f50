package testenv

import (
	"bytes"
	"sync"
)

// Buffer is a log that is written while it is read.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is that of io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is what was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
