package e2e

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
