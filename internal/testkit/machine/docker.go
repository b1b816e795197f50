package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const dockerAskTimeout = 10 * time.Second

// errNoDocker means that no Docker engine answers.
var errNoDocker = errors.New("machine: no Docker engine answers")

// DockerAnswers checks once per test binary.
var DockerAnswers = sync.OnceValue(askDocker)

func askDocker() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerAskTimeout)
	defer cancel()
	if err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run(); err != nil {
		return fmt.Errorf("%w: %w", errNoDocker, err)
	}
	return nil
}

// Container runs a server in Docker. Its data is in a volume and
// so survives Kill, as on a disk.
type Container struct {
	name    string // of the container and its volume
	image   string
	port    int // published on 127.0.0.1
	Inside  int // the server's port in the container
	Data    string
	Env     []string
	Args    []string // the server's own
	Network string   // "host", or "" for the default with a published port
}

var _ Host = Container{}

// NewContainer names a container after a process's folder.
func NewContainer(folder, image string, port int) Container {
	return Container{name: filepath.Base(filepath.Dir(folder)) + "-" + filepath.Base(folder), image: image, port: port}
}

func (c Container) command() *exec.Cmd {
	args := []string{"run", "--rm", "--name", c.name, "--volume", c.name + ":" + c.Data}
	if c.Network != "" {
		args = append(args, "--network", c.Network)
	} else {
		args = append(args, "--publish", Loopback(c.port)+":"+strconv.Itoa(c.Inside))
	}
	for _, pair := range c.Env {
		args = append(args, "--env", pair)
	}
	return exec.Command("docker", append(append(args, c.image), c.Args...)...) //nolint:noctx // its life is the server's
}

// signal goes through the engine, because the process here is
// only the client. SIGSTOP is `docker pause`.
func (c Container) signal(_ *os.Process, sig syscall.Signal) error {
	switch sig {
	case syscall.SIGSTOP:
		return docker("pause", c.name)
	case syscall.SIGCONT:
		return docker("unpause", c.name)
	case syscall.SIGKILL:
		// some engines can't kill a paused container; fails otherwise
		_ = docker("unpause", c.name)
		return docker("kill", "--signal", "KILL", c.name)
	default:
		return docker("kill", "--signal", strconv.Itoa(int(sig)), c.name)
	}
}

// onParentDeath is a signal that the client forwards to the server.
func (Container) onParentDeath() syscall.Signal { return syscall.SIGTERM }

func (c Container) remove() {
	_ = docker("rm", "--force", c.name) // usually removed already
	_ = docker("volume", "rm", "--force", c.name)
}

func docker(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("machine: docker %s: %w: %s", args[0], err, out)
	}
	return nil
}
