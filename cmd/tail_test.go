package cmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

// Only events from the start on, of one campaign, must be printed.
func TestTailPrintsEventsAsTheyCome(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":100000}`)
	serve.post("/campaigns", `{"id":"winter","kind":"coupon","total":100000}`)
	serve.claim("spring", "before")
	tail := launch(t, s.environ, "tail", "--campaign", "spring")
	eventually(t, "nothing is printed", func() bool {
		serve.claim("winter", "ada")
		serve.claim("spring", "ada", "bob")
		return strings.Contains(tail.out.String(), `"user_id":"bob"`)
	})
	ended := tail.stop()
	require.Equal(t, cmd.ExitOK, ended.code)
	require.Contains(t, ended.stdout, `"type":"claim.accepted"`)
	require.NotContains(t, ended.stdout, "winter")
	require.NotContains(t, ended.stdout, "before")
}
