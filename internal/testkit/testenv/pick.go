package testenv

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// Soak reports whether long test runs are requested:
// DIBS_SOAK=1, as `make soak` sets it.
func Soak() bool { return os.Getenv("DIBS_SOAK") == "1" }

// Pick returns short, or full under Soak.
func Pick(short, full int) int {
	if Soak() {
		return full
	}
	return short
}

// uniqueIDMax leaves space for a suffix within a campaign id's 64 characters.
const uniqueIDMax = 48

// UniqueID returns an id unique to this call: the prefix, the test's name in
// lower case and 8 random hex digits, at most 48 characters of a-z, 0-9 and
// "-". It is valid as a campaign id, a user id or part of a key.
func UniqueID(t testing.TB, prefix string) string {
	t.Helper()
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails, see its documentation
	name := plain(prefix + "-" + strings.TrimPrefix(t.Name(), "Test"))
	suffix := "-" + hex.EncodeToString(random[:])
	if len(name)+len(suffix) > uniqueIDMax {
		name = name[:uniqueIDMax-len(suffix)]
	}
	return strings.Trim(name, "-") + suffix
}

// plain lowers letters and replaces all but ASCII letters and digits by "-".
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return '-'
		}
	}, s)
}
