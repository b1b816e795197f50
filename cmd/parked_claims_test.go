package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
)

// Claims that MySQL refuses must be listed, written once it accepts
// them, or given up by id.
func TestParkedClaimsAreListedRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: s.dsn})
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":3}`)
	require.NoError(t, db.Exec("ALTER TABLE claims ADD CONSTRAINT picky CHECK (user_id NOT IN ('bob', 'cid'))").Error)
	serve.claim("spring", "ada", "bob", "cid")
	list := func(args ...string) string {
		return requireOK(t, run(t, s.environ, append([]string{"parked", "list"}, args...)...))
	}
	eventually(t, "claims are not parked", func() bool { return strings.Count(list("-o", "json"), "\n") == 2 })
	require.Regexp(t, `(?m)^\S+ +spring +bob +\S`, list("--campaign", "spring"))
	require.NotContains(t, list("--campaign", "spri"), "bob")
	ids := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(list("-o", "json"))); decoder.More(); {
		var one struct {
			ID   string
			User string `json:"user_id"`
		}
		require.NoError(t, decoder.Decode(&one))
		ids[one.User] = one.ID
	}
	got := run(t, s.environ, "parked", "retry")
	require.Equal(t, cmd.ExitFailed, got.code, got.stderr)
	require.Contains(t, got.stderr, "still parked: 2 claims")

	requireRefusal(t, run(t, s.environ, "parked", "discard"), cmd.ExitUsage, "CLAIM is missing, such as `dibs parked discard 019a")
	requireRefusal(t, run(t, s.environ, "parked", "discard", "nobody"), cmd.ExitFailed, "no such parked event: nobody")
	require.Contains(t, requireOK(t, run(t, s.environ, "parked", "discard", ids["bob"], "-o", "json")), "given up: 1 units are for sale again")
	requireRefusal(t, run(t, s.environ, "parked", "discard", ids["bob"]), cmd.ExitFailed, "no such parked event")
	serve.claim("spring", "dan")

	require.NoError(t, db.Exec("ALTER TABLE claims DROP CONSTRAINT picky").Error)
	require.Contains(t, requireOK(t, run(t, s.environ, "parked", "retry", "--campaign", "spring", "-o", "csv")), "rows of claims")
	require.Empty(t, list("-o", "json"))
	serve.synced("spring", 3)
	require.Equal(t, cmd.ExitOK, run(t, s.environ, "reconcile").code)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}
