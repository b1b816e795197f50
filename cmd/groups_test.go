package cmd_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

func TestGroupsAreListedAddedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	token := "an-admins-token-of-this-test"
	api := start(t, s.with("DIBS_GROUPS=syncer", "DIBS_ADMIN_TOKEN="+token, "DIBS_PARTITIONS=2"), "api")
	environ := []string{"DIBS_URL=" + api.url, "DIBS_TOKEN=" + token}
	requireOK(t, run(t, environ, "groups", "add", "audit"))
	require.Equal(t, "group,partition,lag,pending\naudit,0,0,0\naudit,1,0,0\nsyncer,0,0,0\nsyncer,1,0,0\n",
		requireOK(t, run(t, environ, "groups", "list", "-o", "csv")))
	require.Contains(t, requireOK(t, run(t, environ, "groups", "list", "-o", "json")), `{"name":"audit","partitions":[{"partition":0,"lag":0,"pending":0}`)
	require.Regexp(t, `(?i)group.*partition.*lag`, requireOK(t, run(t, environ, "groups", "list")))
	require.Contains(t, call(t, http.MethodGet, api.url+"/v1/info", "", "Authorization: Bearer "+token).body, `"groups":["audit","syncer"]`)
	requireOK(t, run(t, environ, "groups", "remove", "audit"))
	requireRefusal(t, run(t, environ, "groups", "remove", "audit"), cmd.ExitFailed, "group_not_found")
	requireRefusal(t, run(t, environ, "groups", "remove", "syncer"), cmd.ExitFailed, "invalid", "syncer")
	requireRefusal(t, run(t, environ, "groups", "remove"), cmd.ExitUsage, "GROUP is missing")
	requireRefusal(t, run(t, environ, "groups", "list", "-o", "xml"), cmd.ExitUsage, "--output")
	requireRefusal(t, run(t, []string{"DIBS_URL=" + api.url}, "groups", "list"), cmd.ExitFailed, "unauthorized")
}

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
		return strings.Count(tail.out.String(), `"user_id":"bob"`) > 1 // winter's claim came between
	})
	ended := tail.stop()
	require.Equal(t, cmd.ExitOK, ended.code)
	require.Contains(t, ended.stdout, `"type":"claim.accepted"`)
	require.NotContains(t, ended.stdout, "winter")
	require.NotContains(t, ended.stdout, "before")
}
