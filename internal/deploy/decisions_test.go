package deploy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each decision has a number of its own, and a line in the list.
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
		require.Contains(t, string(list), "]("+f.Name()+") ")
	}
	require.NotEmpty(t, seen)
}
