//go:build !linux

package e2e

import "syscall"

// dieWithParent has no equal here: a test binary that is killed leaves its children.
func dieWithParent() *syscall.SysProcAttr { return nil }
