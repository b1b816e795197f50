package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Main(m)
}

// binary returns the path of the dibs program, built when first asked for.
func binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(orphanMaker); path != "" {
		return path, nil
	}
	dir, err := temporaryFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "dibs")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "dibs")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build dibs: %w\n%s", err, out)
	}
	return path, nil
})

// temporaryFolder makes a folder that goes when this process ends, however it ends: a shell waits for the end of its
// standard input, which is held here.
func temporaryFolder() (string, error) {
	dir, err := os.MkdirTemp("", "dibs-e2e-")
	if err != nil {
		return "", err
	}
	held, given := 1, 0
	pipe := [2]*os.File{}
	pipe[given], pipe[held], err = os.Pipe()
	if err != nil {
		return "", err
	}
	sweeper := exec.Command("sh", "-c", `trap "" INT TERM HUP; read -r line; rm -rf "$1"`, "sh", dir)
	sweeper.Stdin = pipe[given]
	if err := sweeper.Start(); err != nil {
		return "", err
	}
	_ = pipe[given].Close()
	holding = pipe[held]
	return dir, nil
}

// holding keeps temporaryFolder's pipe from being collected and closed.
var holding *os.File

// environ is this process's environment without settings of Dibs, and then with these.
func environ(settings map[string]string) []string {
	all := testenv.Environ()
	for name, value := range settings {
		all = append(all, name+"="+value)
	}
	return all
}
