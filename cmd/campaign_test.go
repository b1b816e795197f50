package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

func TestACampaignFromTheCommandLine(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	over := []string{"DIBS_URL=" + strings.TrimSuffix(serve.url, "/v1")}
	ok := func(line string) string { return requireOK(t, run(t, over, strings.Fields(line)...)) }
	require.Regexp(t, `(?m)^spring +coupon +open +10 +2 `, ok("campaign create spring --total 10 --per-user 2 --title Spring"))
	ok("campaign create winter --total 1")
	require.Equal(t, 3, strings.Count(ok("campaign list"), "\n"))
	require.Equal(t, "id,kind,status,total,remaining,claimed,per user,name,per day\nspring,coupon,open,10,10,0,2,Spring,none\n", ok("campaign list --search SPR -o csv"))

	require.Regexp(t, `ada +2 +1 +claimed`, ok("claim spring --user ada --quantity 2 --key order-1"))
	requireRefusal(t, run(t, over, "claim", "spring", "--user", "ada"), cmd.ExitFailed, "user_limit")
	require.Contains(t, ok("claim spring --user ada --quantity 2 --key order-1 -o json"), `"seq":1`, "the same again")
	require.Regexp(t, `(?m)^spring +open +10 +8 +2 `, ok("campaign get spring"))
	require.Regexp(t, ` 8 +2 +\d+ `, ok("watch spring --once"))

	held := `"hold_max":"15m0s","hold_for":"10m0s","shards":2`
	require.Contains(t, ok("campaign create held --total 3 --hold-for 10m --hold-max 15m --low-stock-at 1 --shards 2 -o json"), held)
	var claim struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(ok("claim held --user ada -o json")), &claim))
	require.Regexp(t, `redeemed`, ok("redeem "+claim.ID+" --order 4711"))
	requireRefusal(t, run(t, over, "release", claim.ID), cmd.ExitFailed, "already_redeemed")
	ok("reopen " + claim.ID + " --order 4711")
	require.Regexp(t, `released`, ok("release "+claim.ID+" --reason late"))

	require.Regexp(t, `(?m)^spring +coupon +open +15 `, ok("campaign set spring --total 15"))
	require.Regexp(t, `(?m)^spring +coupon +paused `, ok("campaign pause spring"))
	requireRefusal(t, run(t, over, "claim", "spring", "--user", "bob"), cmd.ExitFailed, "paused")
	require.Regexp(t, `(?m)^spring +coupon +open `, ok("campaign open spring"))
	require.Regexp(t, `(?m)^spring +coupon +closed `, ok("campaign close spring --confirm spring"))
	requireRefusal(t, run(t, over, "campaign", "delete", "spring"), cmd.ExitFailed, "can't be deleted")

	require.Contains(t, ok("campaign create zero --total 0100 --time-zone America/New_York --starts-at 2035-11-04T03:00 -o json"), `"total":100,`)
	require.Contains(t, ok("campaign set zero --ends-at 2035-11-04T03:30 -o json"), `"ends_at":"2035-11-04T08:30:00Z"`)
	for line, words := range map[string]string{
		"campaign set zero --total 0x10": "decimal digits", "campaign set zero --total 1_000": "decimal digits", "claim zero --user a --quantity 1e1": "decimal digits",
		"campaign set zero --ends-at 2035-11-04T01:30": "as 2035-11-04T01:30:00-05:00", "campaign create a --total 1 --time-zone localtime": "Europe/Berlin", "campaign create a": "--total is missing",
		"redeem x":              "--order",
		"campaign close winter": "--confirm winter", "campaign set winter": "--total", "campaign get": "CAMPAIGN is missing, such as `dibs campaign get spring", "claim winter": "--user",
		"campaign list -o xml": "table, json or csv",
	} {
		requireRefusal(t, run(t, over, strings.Fields(line)...), cmd.ExitUsage, words)
	}
	require.Regexp(t, `(?m)^zero +coupon +open `, ok("campaign delete zero"))
	requireRefusal(t, run(t, over, "campaign", "get", "zero"), cmd.ExitFailed, "No campaign has this id")
	requireRefusal(t, run(t, over, "watch", "no-such"), cmd.ExitFailed, "campaign_not_found")
}

func TestClaimsPacketsAndTheLedgerFromTheCommandLine(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	over := []string{"DIBS_URL=" + serve.url}
	ok := func(line string) string { return requireOK(t, run(t, over, strings.Fields(line)...)) }
	ok("campaign create spring --total 2000")
	serve.claim("spring", "ada", "ada", "ada")
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"campaign_id":"spring","user_id":"ada","idempotency_key":"k%d"}`, i)
	}
	eventually(t, "they are not all claimed", func() bool {
		batch := serve.post("/claims:batch", `{"claims":[`+strings.Join(many, ",")+`]}`)
		return strings.Count(batch.body, `"status":201`) == len(many)
	})
	serve.synced("spring", 1003)
	csv := ok("claims spring -o csv")
	require.True(t, strings.HasPrefix(csv, "id,user,units,seq,status,claimed at,order\n"), csv[:80])
	require.Equal(t, 1004, strings.Count(csv, "\n"), "more than a page")
	id, _, _ := strings.Cut(strings.Split(csv, "\n")[1], ",")
	ok("redeem " + id + " --order 4711")
	eventually(t, "the claim is not redeemed", func() bool { return strings.Contains(ok("claims spring --status redeemed -o csv"), id) })
	require.Contains(t, ok("claims spring --status redeemed"), id)
	require.Contains(t, ok("claims spring --status released -o csv"), "order\n")
	eventually(t, "the ledger is short", func() bool { return strings.Count(ok("ledger spring -o csv"), "\n") == 1005 })
	events := ok("ledger spring -o json")
	require.Equal(t, 1004, strings.Count(events, "\n"))
	require.Contains(t, events, `"order_id":"4711"`)
	require.Regexp(t, `(?m)`+id+` +ada +1 +claim\.redeemed$`, ok("ledger spring"))

	ok("campaign create rain --kind packet --currency EUR")
	require.Regexp(t, `(?m)^ +10 +1,000$`, ok("packets add rain --count 10 --amount 1000 --split even --min 100 --max 100 --release-at 2h"))
	file := filepath.Join(t.TempDir(), "packets.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"id":"p1","amount":500}]`), 0o600))
	require.Equal(t, `{"count":1,"amount":500}`+"\n", ok("packets add rain --key k --file "+file+" -o json"))
	for line, words := range map[string]string{
		"packets add rain": "[count file]", "packets add rain --count 3": "[amount]", "packets add rain --file /nowhere": "--file",
		"packets add rain --count 1 --amount 1 --release-at soon": "--release-at",
	} {
		requireRefusal(t, run(t, over, strings.Fields(line)...), cmd.ExitUsage, words)
	}
	requireRefusal(t, run(t, over, "claims", "nothing"), cmd.ExitFailed, "campaign_not_found")
	requireRefusal(t, run(t, over, "claims", "spring", "--status", "lost"), cmd.ExitFailed, "status")
}

// While MySQL doesn't answer, campaigns must be paused, one or all.
// Once it answers, they must be opened.
func TestCampaignsArePausedWhileMySQLIsFrozen(t *testing.T) {
	t.Parallel()
	sql := testenv.SQLServer(t)
	environ := []string{"DIBS_REDIS_URL=" + testenv.Redis(t).URL(), "DIBS_MYSQL_DSN=" + sql.DSN("dibs"), "DIBS_GROUPS=syncer"}
	require.Equal(t, cmd.ExitOK, run(t, environ, "migrate").code)
	serve := start(t, environ, "serve")
	over := []string{"DIBS_URL=" + serve.url}
	for _, id := range []string{"spring", "summer", "away"} {
		serve.post("/campaigns", `{"id":"`+id+`","kind":"coupon","total":5}`)
	}
	serve.post("/campaigns", `{"id":"wide","kind":"coupon","total":50,"shards":2}`)
	for _, id := range []string{"spring", "summer", "wide"} {
		serve.claim(id, "ada")
		serve.synced(id, 1)
	}
	refused := func(id string) {
		t.Helper()
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns/"+id+"/claims", `{"user_id":"ada"}`)
		require.Equal(t, "paused", got.code(), got.body)
	}

	sql.Pause()
	require.Contains(t, requireOK(t, run(t, over, "campaign", "pause", "spring", "-o", "json")), `"status":"paused"`)
	refused("spring")
	got := call(t, http.MethodPatch, serve.url+"/v1/campaigns/away", `{"status":"paused"}`)
	require.Equal(t, "unavailable", got.code(), got.body)
	require.Contains(t, got.body, "Redis does not hold")
	all := run(t, over, "campaign", "pause", "--all")
	require.Equal(t, cmd.ExitFailed, all.code)
	require.Contains(t, all.stderr, "MySQL does not answer")
	refused("summer")
	refused("wide")
	requireRefusal(t, run(t, over, "campaign", "pause", "spring", "--all"), cmd.ExitUsage, "or --all")

	sql.Resume()
	require.Eventually(t, func() bool { return run(t, over, "campaign", "open", "spring").code == cmd.ExitOK }, within, 100*time.Millisecond)
	serve.claim("spring", "bob")
	requireOK(t, run(t, over, "campaign", "pause", "--all"))
	refused("away")
	require.Contains(t, serve.get("/v1/audit").body, `"action":"campaign.paused"`)
}
