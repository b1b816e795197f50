//go:build !linux

package torture

import "os/exec"

// tie does nothing: only Linux ties a child's life to its parent's.
func tie(*exec.Cmd) {}
