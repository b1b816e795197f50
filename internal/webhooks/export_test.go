package webhooks

import (
	"net/netip"
	"time"
)

// Hurry has retries follow each other within milliseconds.
func (c Config) Hurry() Config {
	c.initialBackoff, c.maxBackoff = time.Millisecond, 20*time.Millisecond
	return c
}

// MayDial is mayDial.
func MayDial(addr string, private bool) error { return mayDial(netip.MustParseAddr(addr), private) }

// ErrAddress is errAddress.
var ErrAddress = errAddress
