package lab

import (
	"os/exec"
	"syscall"
)

// tie has the kernel kill the command when the thread that starts it ends: see startProcess, which keeps that thread.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
