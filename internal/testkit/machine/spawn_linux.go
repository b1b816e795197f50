package machine

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawnRequest is a command to start on the spawning thread.
type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go spawnForever(requests)
	return requests
})

// spawnForever starts children from one thread that never ends.
// The kernel sends the parent-death signal when the *thread*
// that started a child ends, and Go may end threads at any time.
func spawnForever(requests <-chan spawnRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.done <- r.cmd.Start()
	}
}

// Spawn starts cmd so that it gets the signal when this process
// ends, for any reason.
func Spawn(cmd *exec.Cmd, onParentDeath syscall.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: onParentDeath}
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	spawner() <- r
	return <-r.done
}
