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
	env     []string // added to this program's own
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

// programFolders are searched after PATH: a user's PATH often lacks the folders
// where servers are installed.
var programFolders = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin"}

// errNoProgram says that none of the wanted programs is installed.
var errNoProgram = errors.New("testenv: program not found")

// findProgram returns the path of the first of names that is installed.
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

// asRoot returns the argument without which database servers refuse to run as
// root; nothing for other users.
func asRoot() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}
