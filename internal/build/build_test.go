package build

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNextVersionIsNotReleasedYet(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	require.NotContains(t, string(changelog), "## ["+strings.TrimSuffix(next, "-dev")+"]")
	require.NotEqual(t, "dev", Of().Version, "a clone says what it is")
}
