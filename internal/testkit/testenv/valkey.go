package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"dibs/internal/testkit/machine"
)

// Valkey is Redis with a Valkey. Without one, the test is skipped and says
// what to install. Each such test also runs on the usual server.
func Valkey(t testing.TB, conf ...string) *RedisServer {
	t.Helper()
	program, err := machine.FindProgram("valkey-server")
	if cache, cacheErr := os.UserCacheDir(); err != nil && cacheErr == nil { // from scripts/valkey
		program, err = machine.FindProgram(filepath.Join(cache, "dibs", "valkey", "usr", "bin", "valkey-server"))
	}
	if err != nil {
		t.Skip("NOT TESTED ON VALKEY: it is not installed; `scripts/valkey` unpacks one")
	}
	return ownRedis(t, program, conf)
}
