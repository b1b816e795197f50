package lua

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDurability reports an unknown durability,
// or a server that can't provide it.
var ErrDurability = errors.New("lua: durability")

// Durability is what must hold before a
// claim is answered. The zero value is Fast.
type Durability string

// The durabilities.
const (
	Fast    Durability = "fast"          // Redis has it in memory
	Fsync   Durability = "fsync"         // it is on Redis' disk
	Vouched Durability = "fsync:vouched" // as Fsync, of a Redis whose settings can't be read
	MySQL   Durability = "mysql"         // MySQL has committed its row
)

// ParseDurability parses a Durability. The error wraps ErrDurability.
func ParseDurability(text string) (Durability, error) {
	switch d := Durability(text); d {
	case Fast, Fsync, Vouched, MySQL:
		return d, nil
	}
	if strings.HasPrefix(text, "replica:") {
		return "", fmt.Errorf("%w: there is no %q any more: %q outlives the loss of any Redis", ErrDurability, text, MySQL)
	}
	return "", fmt.Errorf("%w: must be %s, %s or %s, not %q", ErrDurability, Fast, Fsync, MySQL, text)
}

// String returns the text for ParseDurability.
func (d Durability) String() string {
	if d == "" {
		return string(Fast)
	}
	return string(d)
}

// IsFsync reports whether claims are answered after Redis' fsync.
func (d Durability) IsFsync() bool { return d == Fsync || d == Vouched }
