package lab_test

import (
	"os"
	"os/exec"
	"testing"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
	"dibs/proof/trials"
)

// TestMain is also the program, for the lab's processes: workers
// and `dibs serve`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == lab.WorkerCommand || os.Args[1] == "serve") {
		cmd.Main(trials.Run)
	}
	testenv.Main(m)
}

// self starts this test binary as the program.
func self(args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exec.Command(path, args...)
}
