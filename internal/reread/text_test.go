package reread_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/reread"
)

func TestATextIsReadWithoutMarkAndLineBreaks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n\r\n": "hunter2", "\ufeffhunter2\n": "hunter2",
		"two words\n": "two words", "one\ntwo\n": "one\ntwo", "": "", "\ufeff\n": "",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := reread.Text(path)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}
}

func TestATextThatCannotBeReadIsNamedAndNotQuoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"large": strings.Repeat("hunter2 ", 1<<17+1), "utf16": "\xff\xfeh\x00u\x00n\x00t\x00e\x00r\x002\x00", "bytes": "hunter2\xff",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := reread.Text(path)
		require.ErrorContains(t, err, path)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := reread.Text(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = reread.Text(dir)
	require.ErrorContains(t, err, dir)
}
