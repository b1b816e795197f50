//go:build !linux

package lab

import "os/exec"

// tie does nothing: only Linux can tie a child's life to its parent's.
func tie(*exec.Cmd) {}
