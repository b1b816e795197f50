package deploy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each decision has its own number, and a line with its title in the list.
func TestDecisionsHaveNumbersAndAreListed(t *testing.T) {
	t.Parallel()
	const folder = "../../docs/decisions/"
	list, err := os.ReadFile(folder + "README.md")
	require.NoError(t, err)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	seen := map[string]string{}
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "-")
		if f.Name() == "README.md" {
			continue
		}
		require.Empty(t, seen[number], "%s has the number of another", f.Name())
		seen[number] = f.Name()
		page, err := os.ReadFile(folder + f.Name())
		require.NoError(t, err)
		title, _, _ := strings.Cut(strings.TrimPrefix(string(page), "# "), "\n")
		require.Contains(t, string(list), "- ["+number+"]("+f.Name()+") "+title+"\n")
	}
	require.NotEmpty(t, seen)
}
