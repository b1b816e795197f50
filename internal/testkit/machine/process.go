package machine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Process runs a server program of this machine.
type Process struct {
	Program string
	Args    []string
	Folder  string
	Env     []string // in addition to this program's
}

var _ Host = Process{}

func (p Process) command() *exec.Cmd {
	cmd := exec.Command(p.Program, p.Args...) //nolint:noctx // its life is the server's
	cmd.Dir = p.Folder
	cmd.Env = append(os.Environ(), p.Env...)
	return cmd
}

func (Process) signal(running *os.Process, sig syscall.Signal) error { return running.Signal(sig) }

func (Process) onParentDeath() syscall.Signal { return syscall.SIGKILL }

func (Process) remove() {}

// programFolders are searched after PATH: a user's PATH often
// lacks the folders of servers.
var programFolders = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/homebrew/sbin"}

// errNoProgram means that none of the programs is installed.
var errNoProgram = errors.New("machine: program not found")

// FindProgram returns the path of the first installed program.
func FindProgram(names ...string) (string, error) {
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
