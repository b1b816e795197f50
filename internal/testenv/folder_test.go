package testenv_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestSweepRemovesOnlyWhatNobodyUses(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	hourAgo := time.Now().Add(-time.Hour)
	folder := func(name string, age time.Time) string {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "redis-1"), 0o700))
		require.NoError(t, os.Chtimes(dir, age, age))
		return dir
	}
	left := folder("dibs-test-left", hourAgo)
	young := folder("dibs-test-young", time.Now())
	foreign := folder("somebody-elses", hourAgo)
	used := folder("dibs-test-used", hourAgo)
	lock, err := testenv.LockFile(filepath.Join(used, "lock"))
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(used, hourAgo, hourAgo)) // the lock file made it young
	defer func() { require.NoError(t, lock.Close()) }()

	testenv.Sweep(parent)

	require.NoDirExists(t, left)
	require.DirExists(t, young)
	require.DirExists(t, foreign)
	require.DirExists(t, used)
}
