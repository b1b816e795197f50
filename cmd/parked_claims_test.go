package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/models"
)

func (r *running) claimsOf(user string) []models.Claim {
	r.t.Helper()
	var list struct {
		Claims []models.Claim `json:"claims"`
	}
	r.get("/v1/users/"+user+"/claims").into(r.t, &list)
	return list.Claims
}

func (r *running) redeem(id string) (code string) {
	r.t.Helper()
	return call(r.t, "POST", r.url+"/v1/claims/"+id+"/redeem", `{"order_id":"o"}`).code()
}

// Claims that MySQL refuses must be listed, written once it accepts them, or
// given up: by id, or all of them by a repair that is asked for it. All routes
// must agree on one.
func TestParkedClaimsAreListedRetriedDiscardedAndGivenUp(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":5,"per_user":1}`)
	s.exec("ALTER TABLE claims ADD CONSTRAINT picky CHECK (user_id NOT IN ('bob', 'cid', 'dan'))")
	serve.claim("spring", "ada", "bob", "cid", "dan")
	list := func(args ...string) string {
		return requireOK(t, run(t, s.environ, append([]string{"parked", "list"}, args...)...))
	}
	eventually(t, "claims are not parked", func() bool {
		return strings.Count(list("-o", "json"), "\n") == 3 && s.number("SELECT COUNT(*) FROM claims") == 1
	})
	require.Regexp(t, `(?m)^\S+ +spring +bob +\S`, list("--campaign", "spring"))
	for _, verb := range []string{"list", "retry"} {
		requireRefusal(t, run(t, s.environ, "parked", verb, "--campaign", "sprung"), cmd.ExitFailed, "no campaign sprung")
	}
	ids := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(list("-o", "json"))); decoder.More(); {
		var one struct {
			ID   string
			User string `json:"user_id"`
		}
		require.NoError(t, decoder.Decode(&one))
		ids[one.User] = one.ID
	}
	var stock struct{ Parked, Claimed, Backlog int64 }
	serve.get("/v1/campaigns/spring/stock").into(t, &stock)
	require.Equal(t, []int64{3, 4, 0}, []int64{stock.Parked, stock.Claimed, stock.Backlog})
	var one models.Claim
	serve.get("/v1/claims/"+ids["dan"]).into(t, &one)
	require.Equal(t, []models.Claim{one}, serve.claimsOf("dan"))
	require.Equal(t, models.ClaimParked, one.Status)
	require.Equal(t, "claim_parked", serve.redeem(ids["dan"]))
	require.Equal(t, "user_limit", call(t, "POST", serve.url+"/v1/campaigns/spring/claims", `{"user_id":"dan"}`).code())
	got := run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stdout+got.stderr)
	require.Regexp(t, `(?m)^spring: claim \S+ .*\bdan\b.* parked`, got.stdout, "it names the claim, its user and the reason")

	got = run(t, s.environ, "parked", "retry")
	require.Equal(t, cmd.ExitFailed, got.code, got.stderr)
	require.Contains(t, got.stderr, "still parked: 3 claims")
	requireRefusal(t, run(t, s.environ, "parked", "discard", "nobody"), cmd.ExitFailed, "no such parked event: nobody")
	require.Contains(t, requireOK(t, run(t, s.environ, "parked", "discard", ids["bob"], "-o", "json")), "given up: 1 units are for sale again")

	s.exec("ALTER TABLE claims DROP CONSTRAINT picky")
	s.exec("ALTER TABLE claims ADD CONSTRAINT picky CHECK (user_id <> 'dan')")
	require.Contains(t, run(t, s.environ, "parked", "retry", "--campaign", "spring", "-o", "csv").stdout, "rows of claims")
	require.Equal(t, models.ClaimClaimed, serve.claimsOf("cid")[0].Status)
	require.Contains(t, requireOK(t, run(t, s.environ, "reconcile", "--repair", "--give-up-claims")), "repaired")
	require.Empty(t, list("-o", "json"))
	require.EqualValues(t, 2, s.number("SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NOT NULL"), "they are kept for people")
	require.Regexp(t, `(?m)^spring +5 +2 +2 +2 +0 +0 +agree$`, requireOK(t, run(t, s.environ, "reconcile")), "their units are free")

	// for storefronts it no longer exists
	require.Equal(t, "claim_not_found", serve.redeem(ids["dan"]))
	require.Empty(t, serve.claimsOf("dan"))
	s.exec("ALTER TABLE claims DROP CONSTRAINT picky")
	serve.claim("spring", "dan")
	serve.synced("spring", 3)
	require.Equal(t, models.ClaimClaimed, serve.claimsOf("dan")[0].Status)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}
