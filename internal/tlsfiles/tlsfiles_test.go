package tlsfiles_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/internal/tlsfiles"
)

// After a byte order mark the first PEM block would be skipped,
// leaving only the file's others.
func TestFilesOfAnEditorThatMarksThem(t *testing.T) {
	t.Parallel()
	marked := func(files ...string) string {
		all := "\ufeff"
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all += string(text)
		}
		path := filepath.Join(t.TempDir(), "marked.pem")
		require.NoError(t, os.WriteFile(path, []byte(all), 0o600))
		return path
	}
	cert, key := testenv.Certificate(t)
	other, _ := testenv.Certificate(t)
	pair, err := tlsfiles.Pair(marked(cert, other), marked(key))
	require.NoError(t, err)
	require.Len(t, pair.Certificate, 2)
	want, err := tlsfiles.Authorities(cert)
	require.NoError(t, err)
	got, err := tlsfiles.Authorities(marked(cert))
	require.NoError(t, err)
	require.True(t, want.Equal(got))
	_, err = tlsfiles.Authorities(key)
	require.ErrorContains(t, err, key+" holds no certificate")
}
