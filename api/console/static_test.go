package console

import (
	"mime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatic_TypesAreNotThoseOfTheMachine: its tables may say anything.
func TestStatic_TypesAreNotThoseOfTheMachine(t *testing.T) {
	t.Parallel()
	for ext, kind := range map[string]string{"css": "text/css", "js": "text/javascript"} {
		require.NoError(t, mime.AddExtensionType("."+ext, "application/x-odd"))
		all, err := readStatic()
		require.NoError(t, err)
		for name, file := range all {
			if len(name) > len(ext) && name[len(name)-len(ext)-1:] == "."+ext {
				require.Equal(t, kind+"; charset=utf-8", file.kind, name)
			}
		}
	}
}
