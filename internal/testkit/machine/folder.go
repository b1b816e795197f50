package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// folderPrefix starts this package's folder names, so that sweep
// finds those of killed runs.
const folderPrefix = "dibs-test-"

// memoryFreeMin is the free space required of /dev/shm: a few
// servers' data, in bytes.
const memoryFreeMin = 1 << 30

// sweepAge is the least age of a folder that sweep removes: a
// younger one may not be locked yet.
const sweepAge = time.Minute

// binaryFolder is this test binary's folder: made on first use,
// locked while it runs, removed by End.
var binaryFolder = sync.OnceValues(func() (string, error) {
	parent := folderParent()
	sweep(parent)
	dir, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return "", fmt.Errorf("machine: make a folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("machine: lock the folder: %w", err)
	}
	AtEnd(func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	})
	return dir, nil
})

// Folder makes a folder whose name begins with name. It is removed
// by remove, with this test binary, or, if that is killed, at the
// start of a later one.
func Folder(name string) (dir string, remove func(), err error) {
	parent, err := binaryFolder()
	if err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(parent, name+"-")
	if err != nil {
		return "", nil, fmt.Errorf("machine: make a folder: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// folderParent prefers memory: servers that sync each commit are several
// times faster there. A killed process loses no more than on disk.
func folderParent() string {
	const memory = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) > memoryFreeMin {
		return memory
	}
	return os.TempDir()
}

// sweep removes the folders of killed test binaries.
func sweep(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		lock, err := lockFile(filepath.Join(dir, "lock"))
		if err != nil {
			continue // in use
		}
		unmountAll(dir)
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

// lockFile takes an exclusive lock that the kernel releases when
// this process ends. It fails at once if the lock is held.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
