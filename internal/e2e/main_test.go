package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) {
	testenv.Main(m)
}

// binary returns the path of the dibs program, built on first use.
func binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

var built = sync.OnceValues(func() (string, error) {
	dir, _, err := machine.Folder("programs")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "dibs")
	build := exec.Command("go", testenv.GoArgs("build", "-buildvcs=false", "-o", path, "dibs")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build dibs: %w\n%s", err, out)
	}
	return path, nil
})

// environ is this process's environment without settings of Dibs, plus these.
func environ(settings map[string]string) []string {
	all := testenv.Environ()
	for name, value := range settings {
		all = append(all, name+"="+value)
	}
	return all
}
