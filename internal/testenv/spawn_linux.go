package testenv

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawnRequest asks the spawning thread to start a command.
type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go spawnForever(requests)
	return requests
})

// spawnForever starts children from one thread that never ends. The kernel
// sends a child its parent-death signal when the *thread* that started it ends,
// and Go ends threads as it sees fit, so that thread has to be held.
func spawnForever(requests <-chan spawnRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.done <- r.cmd.Start()
	}
}

// Spawn starts cmd so that it gets the signal when this process ends, however
// it ends.
func Spawn(cmd *exec.Cmd, onParentDeath syscall.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: onParentDeath}
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	spawner() <- r
	return <-r.done
}
