package cmd_test

import (
	"testing"

	"dibs/cmd"

	"github.com/stretchr/testify/require"
)

// Of two consumers with one name, the second must refuse to start and the
// first continue. The name must be free once the first has stopped.
func TestTwoConsumersUnderOneName(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"consumer", "finance"} {
		s := newServers(t)
		requireOK(t, run(t, s.environ, "migrate"))
		first := start(t, s.environ, role)
		second := run(t, s.with("DIBS_NAME="+role), role)
		require.Equal(t, cmd.ExitUsage, second.code, second.stderr)
		require.Contains(t, second.stderr, `DIBS_NAME: another process reads as "`+role+`" in group `)
		require.False(t, first.over())
		other := start(t, s.with("DIBS_NAME=another"), role)
		require.Zero(t, other.stop().code)
		require.Zero(t, first.stop().code)
		start(t, s.environ, role)
	}
}
