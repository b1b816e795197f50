package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Documents may name a test, or a prefix of several. Such a test must exist.
func TestTestsThatDocumentsNameExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	}))
	documents, err := filepath.Glob(root + "docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b(Test[A-Z][A-Za-z0-9_]*)`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, source.String(), "\nfunc "+name[1], "%s names %s", path, name[1])
			named++
		}
	}
	require.Positive(t, named)
}
