package printer

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Without a terminal, shorter work must print nothing.
func TestProgressIsALineEveryOtherSecondWithoutATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := NewProgress(&out, "claims answered", 20_000)
		for i := range 500 {
			bar.Set(i * 40)
			<-time.After(10 * time.Millisecond)
		}
		bar.Done()
		require.Equal(t, "claims answered: 8,000 of 20,000\nclaims answered: 16,000 of 20,000\n", out.String())
	})
}

func TestProgressMayBeToldByAnybodyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := NewProgress(&out, "x", 8)
		<-time.After(plainEvery)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { bar.Set(i) })
		}
		all.Wait()
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), "one line for all of that moment")
	})
}

func TestAFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	require.False(t, isTerminal(file))
	require.False(t, isTerminal(&bytes.Buffer{}))
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, null.Close())
	require.False(t, isTerminal(null), "one that can't be asked")
}
