package arch_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The dibs binary may link only the modules in linked.txt, so
// that new transitive ones are noticed. It may link no package
// that only tests and trials need.
func TestTheServerLinksWhatTheListSays(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", "dibs")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=") // the tests' own flags need C
	out, err := list.Output()
	require.NoError(t, err)
	var modules []string
	for line := range strings.Lines(string(out)) {
		pkg, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		require.NotContains(t, []string{"testing", "dibs/proof/lab", "dibs/proof/torture", "dibs/internal/testkit/testenv"}, pkg)
		if module != "" && module != "dibs" {
			modules = append(modules, module)
		}
	}
	slices.Sort(modules) // for Compact
	text, err := os.ReadFile("linked.txt")
	require.NoError(t, err)
	require.ElementsMatch(t, strings.Split(strings.TrimSpace(string(text)), "\n"), slices.Compact(modules),
		"is it worth its bytes? `go tool nm -size -sort size` shows what it costs. Then give it its line in internal/arch/linked.txt")
}
