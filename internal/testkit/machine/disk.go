package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// errNoDisk means that this machine does not permit mounting a disk.
var errNoDisk = errors.New("machine: no disk can be mounted here; " +
	"it takes root on a Linux that may mount, such as a container with CAP_SYS_ADMIN")

// diskPrefix starts the names of mount points, so that sweep
// finds those of killed runs.
const diskPrefix = "disk-"

// Disk is a test's own disk, in memory, that can be filled.
type Disk struct {
	t    testing.TB
	path string
	size uint64
}

// NewDisk mounts a disk of size bytes, which uses memory only as
// it is written. It returns an error where the machine can't.
func NewDisk(t testing.TB, size uint64) (*Disk, error) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil, errNoDisk
	}
	path, remove, err := Folder("disk")
	if err != nil {
		return nil, err
	}
	d := &Disk{t: t, path: path, size: size}
	if out, err := d.mount("-t", "tmpfs", "-o", sizeOption(size), "tmpfs"); err != nil {
		remove()
		return nil, fmt.Errorf("%w: mount: %w: %s", errNoDisk, err, out)
	}
	t.Cleanup(func() {
		unmount(path)
		remove()
	})
	return d, nil
}

func (d *Disk) mount(args ...string) ([]byte, error) {
	return exec.Command("mount", append(args, d.path)...).CombinedOutput() //nolint:noctx // it ends at once
}

func sizeOption(size uint64) string { return "size=" + strconv.FormatUint(size, 10) }

// Path returns the mount point.
func (d *Disk) Path() string { return d.path }

// spare is the first margin above the used bytes of a disk being
// filled: other processes write at the same time.
const spare = 256 << 10

// Fill leaves no space: one more byte fails with ENOSPC.
func (d *Disk) Fill() {
	d.t.Helper()
	var out []byte
	err := errNoDisk
	// the size can't be below the used bytes, which grow
	for try := uint64(1); err != nil && try <= 100; try++ {
		var fs syscall.Statfs_t
		require.NoError(d.t, syscall.Statfs(d.path, &fs))
		out, err = d.mount("-o", "remount,"+sizeOption((fs.Blocks-fs.Bfree)*uint64(fs.Bsize)+(try-1)*spare))
	}
	require.NoError(d.t, err, "%s", out)
}

// Free makes space again.
func (d *Disk) Free() {
	d.t.Helper()
	out, err := d.mount("-o", "remount,"+sizeOption(d.size))
	require.NoError(d.t, err, "%s", out)
}

// unmount detaches a disk, if there is one. Processes that still
// use it keep it.
func unmount(path string) {
	_ = exec.Command("umount", "-l", path).Run() //nolint:noctx // it ends at once; nothing is mounted there for most
}

// unmountAll detaches the disks that a killed run left in a folder.
func unmountAll(folder string) {
	disks, _ := filepath.Glob(filepath.Join(folder, diskPrefix+"*"))
	for _, path := range disks {
		unmount(path)
	}
}
