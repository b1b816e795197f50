//go:build !linux

package testenv

import (
	"os/exec"
	"syscall"
)

// Spawn starts cmd. Only Linux can tie a child's life to its parent's.
// Elsewhere a killed test binary may leave servers behind. Ctrl-C ends these,
// too, as they share the terminal's process group.
func Spawn(cmd *exec.Cmd, _ syscall.Signal) error { return cmd.Start() }
