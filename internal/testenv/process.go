package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// process runs a server program of this machine.
type process struct {
	program string
	args    []string
	folder  string
	env     []string // in addition to this program's
}

var _ host = process{}

func (p process) command() *exec.Cmd {
	cmd := exec.Command(p.program, p.args...) //nolint:noctx // its life is the server's
	cmd.Dir = p.folder
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

func (process) signal(running *os.Process, sig syscall.Signal) error { return running.Signal(sig) }

func (process) onParentDeath() syscall.Signal { return syscall.SIGKILL }

func (process) remove() {}

// programFolders are searched after PATH: a user's PATH often
// lacks the folders of servers.
var programFolders = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin"}

// errNoProgram means that none of the programs is installed.
var errNoProgram = errors.New("testenv: program not found")

// findProgram returns the path of the first installed program.
func findProgram(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, folder := range programFolders {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", errNoProgram
}

// asRoot returns the argument that database servers require to run as root.
func asRoot() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}
