package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// RedisWithWaitAOF is Redis with a server that knows WAITAOF: a Valkey or a Redis from 7.2. Where there is none, the test is
// skipped and says what to install; each test that uses it needs another one on a stand-in beside it.
func RedisWithWaitAOF(t testing.TB, conf ...string) *RedisServer {
	t.Helper()
	program := waitAOFProgram()
	if program == "" {
		t.Skip("NOT TESTED ON A REAL SERVER: none that knows WAITAOF is installed; `scripts/valkey` unpacks one")
	}
	return ownRedis(t, program, conf)
}

var waitAOFProgram = sync.OnceValue(func() string {
	unpacked := "" // by scripts/valkey
	if cache, err := os.UserCacheDir(); err == nil {
		unpacked = filepath.Join(cache, "dibs", "valkey", "usr", "bin", "valkey-server")
	}
	for _, name := range []string{"valkey-server", "redis-server", unpacked} {
		if path, err := findProgram(name); err == nil && knowsWaitAOF(path) {
			return path
		}
	}
	return ""
})

var serverVersion = regexp.MustCompile(` v=(\d+)\.(\d+)`)

func knowsWaitAOF(program string) bool {
	text, _ := exec.Command(program, "--version").Output() //nolint:noctx // it prints and ends
	found := serverVersion.FindSubmatch(text)
	if found == nil {
		return false
	}
	major, _ := strconv.Atoi(string(found[1])) // digits
	minor, _ := strconv.Atoi(string(found[2]))
	return major > 7 || major == 7 && minor >= 2
}
