package testenv

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

// Images for machines without the server programs. Tests need nothing newer.
const (
	redisImage   = "redis:7.4-alpine"
	mariaDBImage = "mariadb:10.11"
)

const dockerAskTimeout = 10 * time.Second

// errNoDocker means that no Docker engine answers.
var errNoDocker = errors.New("testenv: no Docker engine answers")

// dockerAnswers checks once per test binary.
var dockerAnswers = sync.OnceValue(askDocker)

func askDocker() error {
	ctx, cancel := context.WithTimeout(context.Background(), dockerAskTimeout)
	defer cancel()
	if err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run(); err != nil {
		return fmt.Errorf("%w: %w", errNoDocker, err)
	}
	return nil
}

// container runs a server in Docker. Its data is in a volume and
// so survives Kill, as on a disk.
type container struct {
	name    string // of the container and its volume
	image   string
	port    int // published on 127.0.0.1
	inside  int // the server's port in the container
	data    string
	env     []string
	args    []string // the server's own
	network string   // "host", or "" for the default with a published port
}

var _ host = container{}

// newContainer names a container after a process's folder.
func newContainer(folder, image string, port int) container {
	return container{name: filepath.Base(filepath.Dir(folder)) + "-" + filepath.Base(folder), image: image, port: port}
}

func (c container) command() *exec.Cmd {
	args := []string{"run", "--rm", "--name", c.name, "--volume", c.name + ":" + c.data}
	if c.network != "" {
		args = append(args, "--network", c.network)
	} else {
		args = append(args, "--publish", loopback(c.port)+":"+strconv.Itoa(c.inside))
	}
	for _, pair := range c.env {
		args = append(args, "--env", pair)
	}
	return exec.Command("docker", append(append(args, c.image), c.args...)...) //nolint:noctx // its life is the server's
}

// signal goes through the engine, because the process here is
// only the client. SIGSTOP is `docker pause`.
func (c container) signal(_ *os.Process, sig syscall.Signal) error {
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
func (container) onParentDeath() syscall.Signal { return syscall.SIGTERM }

func (c container) remove() {
	_ = docker("rm", "--force", c.name) // usually removed already
	_ = docker("volume", "rm", "--force", c.name)
}

func docker(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: docker %s: %w: %s", args[0], err, out)
	}
	return nil
}
