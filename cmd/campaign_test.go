package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

func TestACampaignFromTheCommandLine(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	ok := serve.ok
	require.Regexp(t, `(?m)^spring +coupon +open +10 +2 `, ok("campaign create spring --total 10 --per-user 2 --title Spring"))
	ok("campaign create winter --total 1")
	require.Equal(t, 3, strings.Count(ok("campaign list"), "\n"))
	require.Equal(t, "id,kind,status,total,remaining,claimed,per user,name,per day\nspring,coupon,open,10,10,0,2,Spring,none\n", ok("campaign list --search SPR -o csv"))

	require.Regexp(t, `ada +2 +1 +claimed`, ok("claim spring --user ada --quantity 2 --key order-1"))
	requireRefusal(t, serve.cli("claim spring --user ada"), cmd.ExitFailed, "user_limit")
	require.Contains(t, ok("claim spring --user ada --quantity 2 --key order-1 -o json"), `"seq":1`, "the same again")
	require.Regexp(t, `(?m)^spring +open +10 +8 +2 `, ok("campaign get spring"))
	require.Regexp(t, ` 8 +2 +\d+ `, ok("watch spring --once"))

	held := `"hold_max":"15m0s","hold_for":"10m0s","shards":2`
	require.Contains(t, ok("campaign create held --total 3 --hold-for 10m --hold-max 15m --low-stock-at 1 --shards 2 -o json"), held)
	var claim struct{ ID string }
	decode(t, ok("claim held --user ada -o json"), &claim)
	require.Regexp(t, `redeemed`, ok("redeem "+claim.ID+" --order 4711"))
	requireRefusal(t, serve.cli("release "+claim.ID), cmd.ExitFailed, "already_redeemed")
	ok("reopen " + claim.ID + " --order 4711")
	require.Regexp(t, `released`, ok("release "+claim.ID+" --reason late"))

	limited := ok("campaign create limited --total 9 --per-user 2 --limit device:day:1 --limit user:hour:2 -o json")
	require.Contains(t, limited, `{"by":"device","per":"day","max":1},{"by":"user","per":"hour","max":2}`)
	ok("claim limited --user ada --subject device=d1")
	requireRefusal(t, serve.cli("claim limited --user bob --subject device=d1"), cmd.ExitFailed, "limit")
	require.Contains(t, ok("campaign set limited --limit device:week:3 -o json"), `"limits":[{"by":"device","per":"week","max":3`)
	require.NotContains(t, ok("campaign set limited --limit none -o json"), `"limits":[{`)

	require.Regexp(t, `(?m)^spring +coupon +open +15 `, ok("campaign set spring --total 15"))
	require.Regexp(t, `(?m)^spring +coupon +paused `, ok("campaign pause spring"))
	requireRefusal(t, serve.cli("claim spring --user bob"), cmd.ExitFailed, "paused")
	require.Regexp(t, `(?m)^spring +coupon +open `, ok("campaign open spring"))
	require.Regexp(t, `(?m)^spring +coupon +closed `, ok("campaign close spring --confirm spring"))
	requireRefusal(t, serve.cli("campaign delete spring"), cmd.ExitFailed, "can't be deleted")

	require.Contains(t, ok("campaign create zero --total 0100 --time-zone America/New_York --starts-at 2035-11-04T03:00 -o json"), `"total":100,`)
	requireRefusal(t, serve.cli("campaign set zero --public nothinglevel"), cmd.ExitFailed, "public")
	require.Contains(t, ok("campaign set zero --ends-at 2035-11-04T03:30 -o json"), `"ends_at":"2035-11-04T08:30:00Z"`)
	for line, words := range map[string]string{
		"campaign set zero --total 0x10": "decimal digits", "campaign set zero --total 1_000": "decimal digits", "claim zero --user a --quantity 1e1": "decimal digits",
		"campaign set zero --ends-at 2035-11-04T01:30": "as 2035-11-04T01:30:00-05:00", "campaign create a --total 1 --time-zone localtime": "Europe/Berlin", "campaign create a": "--total is missing",
		"redeem x": "--order", "claim zero --user a --quantity 0": "--quantity must be 1 or more",
		"claim zero --user a --key=": "--key must be", "extend x --by 1m --key=": "--key must be", "packets add zero --count 1 --amount 1 --key=": "--key must be",
		"campaign close winter": "--confirm winter", "campaign set winter": "--total", "campaign get": "CAMPAIGN is missing, such as `dibs campaign get spring", "claim winter": "--user",
		"campaign list -o xml": "table, json or csv",
	} {
		requireRefusal(t, serve.cli(line), cmd.ExitUsage, words)
	}
	// what the service refuses is sent to it, not left out
	requireRefusal(t, serve.cli("campaign create few --total 10 --per-user -1"), cmd.ExitFailed, "per_user")
	requireRefusal(t, serve.cli("campaign create rain --kind packet --total 10"), cmd.ExitFailed, "total")
	require.NotContains(t, ok("campaign create rain --kind packet --per-user 0 -o json"), "per_user", "no limit, instead of 1")
	requireRefusal(t, serve.cli("claim zero --user ada"), cmd.ExitFailed, "not_started")
	require.Regexp(t, `(?m)^zero +coupon +open `, ok("campaign delete zero"))
	requireRefusal(t, serve.cli("claim zero --user ada"), cmd.ExitFailed, "campaign_not_found")
	ok("campaign create zero --kind packet")
	ok("packets add zero --count 1 --amount 5 --split even")
	require.Contains(t, ok("claim zero --user ada -o json"), `"amount":5`, "of the campaign that has the id now")
	ok("campaign create gone --total 1")
	ok("campaign delete gone")
	requireRefusal(t, serve.cli("campaign get gone"), cmd.ExitFailed, "No campaign has this id")
	requireRefusal(t, serve.cli("watch no-such"), cmd.ExitFailed, "campaign_not_found")
}

func TestClaimsPacketsAndTheLedgerFromTheCommandLine(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	ok := serve.ok
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
	require.NoError(t, os.WriteFile(file, []byte(`[{"id":"p2","amount":500,"release_at":"2036-01-01T00:00:00Z"}]`), 0o600))
	requireRefusal(t, serve.cli("packets add rain --file "+file), cmd.ExitUsage, `--file: json: unknown field "release_at"`)
	require.NoError(t, os.WriteFile(file, []byte(`[{"id":"p2","amount":500}]]`), 0o600))
	requireRefusal(t, serve.cli("packets add rain --file "+file), cmd.ExitUsage, "--file")
	requireRefusal(t, serve.cli("packets add rain"), cmd.ExitUsage, "[count file]")
	requireRefusal(t, serve.cli("packets add rain --file /nowhere"), cmd.ExitUsage, "--file")
	requireRefusal(t, serve.cli("claims nothing"), cmd.ExitFailed, "campaign_not_found")
	requireRefusal(t, serve.cli("claims spring --status lost"), cmd.ExitFailed, "status")
}

// While MySQL doesn't answer, campaigns must be paused, one or all.
// Once it answers, they must be opened.
func TestCampaignsArePausedWhileMySQLIsFrozen(t *testing.T) {
	t.Parallel()
	sql := testenv.SQLServer(t)
	environ := []string{"DIBS_REDIS_URL=" + testenv.Redis(t).URL(), "DIBS_MYSQL_DSN=" + sql.DSN("dibs"), "DIBS_GROUPS=syncer"}
	require.Equal(t, cmd.ExitOK, run(t, environ, "migrate").code)
	serve := start(t, environ, "serve")
	for _, id := range []string{"spring", "summer", "away"} {
		serve.post("/campaigns", `{"id":"`+id+`","kind":"coupon","total":5}`)
	}
	serve.post("/campaigns", `{"id":"wide","kind":"coupon","total":50,"shards":2}`)
	for _, id := range []string{"spring", "summer", "wide"} {
		serve.claim(id, "ada")
		serve.synced(id, 1)
	}
	requirePaused := func(id string) {
		t.Helper()
		require.Equal(t, "paused", call(t, http.MethodPost, serve.url+"/v1/campaigns/"+id+"/claims", `{"user_id":"ada"}`).code())
	}

	sql.Pause()
	require.Contains(t, requireOK(t, serve.cli("campaign pause spring -o json")), `"status":"paused"`)
	requirePaused("spring")
	got := call(t, http.MethodPatch, serve.url+"/v1/campaigns/away", `{"status":"paused"}`)
	require.Equal(t, "unavailable", got.code(), got.body)
	require.Contains(t, got.body, "Redis does not hold")
	all := serve.cli("campaign pause --all")
	require.Equal(t, cmd.ExitFailed, all.code)
	require.Contains(t, all.stderr, "MySQL does not answer")
	requirePaused("summer")
	requirePaused("wide")
	requireRefusal(t, serve.cli("campaign pause spring --all"), cmd.ExitUsage, "or --all")

	sql.Resume()
	require.Eventually(t, func() bool { return serve.cli("campaign open spring").code == cmd.ExitOK }, within, 100*time.Millisecond)
	serve.claim("spring", "bob")
	requireOK(t, serve.cli("campaign pause --all"))
	requirePaused("away")
	require.Contains(t, serve.get("/v1/audit").body, `"action":"campaign.paused"`)
}

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
	require.Contains(t, call(t, http.MethodGet, api.url+"/v1/info", "", "Authorization: Bearer "+token).body, `"groups":["audit","syncer"]`)
	requireOK(t, run(t, environ, "groups", "remove", "audit"))
	requireRefusal(t, run(t, environ, "groups", "remove", "audit"), cmd.ExitFailed, "group_not_found")
	requireRefusal(t, run(t, environ, "groups", "remove", "syncer"), cmd.ExitFailed, "invalid", "syncer")
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
