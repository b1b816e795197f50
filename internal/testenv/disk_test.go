package testenv_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestDiskIsFullUntilItIsFreed(t *testing.T) {
	t.Parallel()
	disk, err := testenv.NewDisk(t, 8<<20)
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(disk.Path(), "file")
	some := bytes.Repeat([]byte("x"), 1<<20)
	require.NoError(t, os.WriteFile(file, some, 0o600))
	disk.Fill()
	require.ErrorIs(t, os.WriteFile(file+"2", some, 0o600), syscall.ENOSPC)
	disk.Free()
	require.NoError(t, os.WriteFile(file+"2", some, 0o600))
}
