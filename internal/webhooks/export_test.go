package webhooks

import (
	"net/netip"
	"time"
)

// Hurry shortens retries to milliseconds.
func (c Config) Hurry() Config {
	c.initialBackoff, c.maxBackoff = time.Millisecond, 20*time.Millisecond
	return c
}

// MayDial exports mayDial.
func MayDial(addr string, private bool) error { return mayDial(netip.MustParseAddr(addr), private) }

// ErrAddress exports errAddress.
var ErrAddress = errAddress
