package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
	"dibs/models"
)

// booked is an idle system with a consumer: five users claimed a unit
// each of "spring", which has ten.
func booked(t *testing.T) *servers {
	t.Helper()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10,"per_user":1}`)
	serve.claim("spring", "u1", "u2", "u3", "u4", "u5")
	serve.synced("spring", 5)
	require.Zero(t, serve.stop().code)
	start(t, s.environ, "consumer") // MySQL learns of a repair's load by the stream
	return s
}

type comparison struct {
	CampaignID string `json:"campaign_id"`
	Residency  string
	Redis      *struct {
		Status                                        string
		Epoch, Total, Taken, Remaining, Seq, Released int64
	}
	MySQL struct {
		Epoch, Total, Claimed, Remaining, Released, Untold int64
		SyncedSeq                                          int64 `json:"synced_seq"`
		LostClaims                                         int64 `json:"lost_claims"`
		ParkedClaims                                       int64 `json:"parked_claims"`
		ParkedUnits                                        int64 `json:"parked_units"`
	} `json:"mysql"`
	Rows           *struct{ Claims, Units, Last, Released int64 }
	Backlog, Drift *int64
	Differences    []string
}

type repaired struct {
	Found, Left comparison
	Steps       []struct {
		CampaignID string `json:"campaign_id"`
		What       string
		Before     string
		After      string
		At         string
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(v), text)
}

func TestReconcileOfBooksThatAgree(t *testing.T) {
	t.Parallel()
	s := booked(t)
	before := s.number("SELECT COUNT(*) FROM reconciliations")
	got := run(t, s.environ, "reconcile")
	out := requireOK(t, got)
	require.Regexp(t, `(?m)^spring +10 +5 +5 +5 +0 +0 +agree$`, out)
	require.Regexp(t, `^campaign +total +redis +mysql +rows +backlog +drift +books\n`, out)
	require.Equal(t, 2, strings.Count(out, "\n"))
	require.NotContains(t, got.stderr, "level=ERROR")
	require.Equal(t, before+1, s.number("SELECT COUNT(*) FROM reconciliations"), "each comparison is kept")

	out = requireOK(t, run(t, s.environ, "reconcile", "-o", "json"))
	var c comparison
	decode(t, out, &c)
	require.Equal(t, 1, strings.Count(out, "\n"), "a line a campaign")
	require.Equal(t, []any{"spring", "resident", int64(0), int64(0)}, []any{c.CampaignID, c.Residency, *c.Backlog, *c.Drift})
	require.Equal(t, []int64{10, 5, 5, 5}, []int64{c.Redis.Total, c.Redis.Taken, c.Redis.Remaining, c.Redis.Seq})
	require.Equal(t, []any{"open", int64(1), int64(1)}, []any{c.Redis.Status, c.Redis.Epoch, c.MySQL.Epoch})
	require.Equal(t, []int64{10, 5, 5, 5}, []int64{c.MySQL.Total, c.MySQL.Claimed, c.MySQL.Remaining, c.MySQL.SyncedSeq})
	require.Equal(t, []int64{5, 5, 5, 0}, []int64{c.Rows.Claims, c.Rows.Units, c.Rows.Last, c.Rows.Released})
	require.Empty(t, c.Differences)

	var r repaired
	decode(t, requireOK(t, run(t, s.environ, "reconcile", "--repair", "-o", "json")), &r)
	require.Empty(t, r.Steps, "nothing to put right")
	require.Zero(t, s.number("SELECT COUNT(*) FROM repairs"))
}

func TestReconcileWithoutCampaignsSaysNothingIsWrong(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	out := requireOK(t, run(t, s.environ, "reconcile"))
	require.Equal(t, 2, strings.Count(out, "\n"), "the head, and that there are none: %s", out)
	require.True(t, strings.HasSuffix(out, "0 campaigns in mysql\n"), out)
	require.Empty(t, requireOK(t, run(t, s.environ, "reconcile", "-o", "json")))
	requireRefusal(t, run(t, s.environ, "reconcile", "--campaign", "spring"), cmd.ExitFailed, "no campaign spring")
}

func TestReconcileFindsADriftAndRepairsIt(t *testing.T) {
	t.Parallel()
	s := booked(t)
	require.NoError(t, s.rdb.HSet(t.Context(), state("spring"), "taken", "3").Err())
	got := run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stdout+got.stderr)
	require.Regexp(t, `(?m)^spring +10 +3 +5 +5 +0 +2 +DIFFER$`, got.stdout)
	require.Regexp(t, `(?m)^spring: .*\b3\b.*\b5\b`, got.stdout, "what differs, in both figures")
	require.Regexp(t, `(?m)^dibs: .*1 of 1 campaigns`, got.stderr)
	require.EqualValues(t, 2, s.number("SELECT drift FROM stock_watch WHERE campaign_id = 'spring'"))
	require.Zero(t, s.number("SELECT COUNT(*) FROM repairs"), "a comparison changes nothing")

	got = run(t, s.environ, "reconcile", "--campaign", "spring", "-o", "json")
	require.Equal(t, cmd.ExitDrift, got.code)
	var c comparison
	decode(t, got.stdout, &c)
	require.EqualValues(t, 2, *c.Drift)
	require.NotEmpty(t, c.Differences)

	got = run(t, s.environ, "reconcile", "--repair")
	out := requireOK(t, got)
	require.Regexp(t, `(?m)^spring +10 +5 +5 +5 +0 +0 +repaired$`, out)
	require.Regexp(t, `(?m)^spring: repaired redis: .* 3 units taken.* -> loaded again from the rows of claims`, out)
	require.NotContains(t, out, "still:")
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM repairs WHERE campaign_id = 'spring' AND what = 'redis'"))
	require.Regexp(t, ` agree\n`, requireOK(t, run(t, s.environ, "reconcile")))
}

// A claim on its way is backlog, not a difference.
func TestReconcileOfALagIsNoDrift(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	api := start(t, s.environ, "api")
	api.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	api.claim("spring", "u1", "u2")
	out := requireOK(t, run(t, s.environ, "reconcile"))
	require.Regexp(t, `(?m)^spring +10 +2 +0 +0 +2 +\S+ +agree so far$`, out)
	consumer := start(t, s.environ, "consumer")
	api.synced("spring", 2)
	require.Zero(t, consumer.stop().code)
	require.Regexp(t, ` agree\n`, requireOK(t, run(t, s.environ, "reconcile")))
}

func parkedClaim(t *testing.T) *servers {
	t.Helper()
	s := newServers(t)
	s.exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u3')")
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10,"per_user":1}`)
	serve.claim("spring", "u1", "u2", "u3", "u4")
	eventually(t, "nothing is parked", func() bool {
		return s.number("SELECT COUNT(*) FROM parked_events") == 1 && s.number("SELECT COUNT(*) FROM claims") == 3
	})
	var stock struct{ Parked, Claimed, Backlog int64 } // all routes must agree
	serve.get("/v1/campaigns/spring/stock").into(t, &stock)
	require.Equal(t, []int64{1, 4, 0}, []int64{stock.Parked, stock.Claimed, stock.Backlog})
	id := s.parkedID()
	var one models.Claim
	serve.get("/v1/claims/"+id).into(t, &one)
	require.Equal(t, []models.Claim{one}, serve.claimsOf("u3"))
	require.Equal(t, models.ClaimParked, one.Status)
	require.Equal(t, []string{"claim_parked", "claim_parked"}, serve.ends(id))
	require.Equal(t, "user_limit", call(t, "POST", serve.url+"/v1/campaigns/spring/claims", `{"user_id":"u3"}`).code())
	require.Zero(t, serve.stop().code)
	start(t, s.environ, "consumer")
	got := run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stdout+got.stderr)
	require.Regexp(t, `(?m)^spring: claim \S+ .*\bu3\b.* parked`, got.stdout, "it names the claim, its user and the reason")
	return s
}

func (s *servers) parkedID() (id string) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "SELECT id FROM parked_events").Scan(&id))
	return id
}

func (r *running) claimsOf(user string) []models.Claim {
	r.t.Helper()
	var list struct {
		Claims []models.Claim `json:"claims"`
	}
	r.get("/v1/users/"+user+"/claims").into(r.t, &list)
	return list.Claims
}

func (r *running) ends(id string) (codes []string) {
	r.t.Helper()
	for path, body := range map[string]string{"redeem": `{"order_id":"o"}`, "release": `{}`} {
		got := call(r.t, "POST", r.url+"/v1/claims/"+id+"/"+path, body)
		codes = append(codes, got.code())
	}
	return codes
}

func TestAParkedClaimIsGivenUpOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	s := parkedClaim(t)
	requireRefusal(t, run(t, s.environ, "reconcile", "--give-up-claims"), cmd.ExitUsage, "--repair")
	out := requireOK(t, run(t, s.environ, "reconcile", "--repair", "--give-up-claims"))
	require.Contains(t, out, "repaired")
	require.Regexp(t, `(?m)^spring +10 +3 +3 +3 +0 +0 +agree$`, requireOK(t, run(t, s.environ, "reconcile")), "its unit is free")
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NOT NULL"), "it is kept for people")

	serve, id := start(t, s.environ, "serve"), s.parkedID() // for storefronts it no longer exists
	require.Equal(t, []string{"claim_not_found", "claim_not_found"}, serve.ends(id))
	require.Equal(t, "claim_not_found", call(t, "GET", serve.url+"/v1/claims/"+id, "").code())
	require.Empty(t, serve.claimsOf("u3"))
	s.exec("ALTER TABLE claims DROP CONSTRAINT not_u3")
	serve.claim("spring", "u3")
	eventually(t, "the new claim has no row", func() bool { return len(serve.claimsOf("u3")) == 1 })
	require.Equal(t, models.ClaimClaimed, serve.claimsOf("u3")[0].Status)
}

// A database that is empty, or restored from another one's dump, must
// not agree with a Redis that holds campaigns.
func TestReconcileNamesCampaignsThatOnlyRedisHas(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	api := start(t, s.environ, "api")
	start(t, s.environ, "consumer")
	api.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	api.post("/campaigns", `{"id":"summer","kind":"coupon","total":10,"shards":2}`)
	api.claim("spring", "u1")
	api.claim("summer", "u1", "u2")
	requireOK(t, run(t, s.environ, "reconcile"))
	require.Equal(t, cmd.ExitOK, api.stop().code)

	older := testenv.Database(t).DSN // like a dump from before the first campaign
	empty := s.with("DIBS_MYSQL_DSN=" + older)
	requireOK(t, run(t, empty, "migrate"))
	_, err := openSQL(t, older).Exec("UPDATE settings SET value = ? WHERE name = 'installation'", installationRow(t, s.dsn))
	require.NoError(t, err)
	for _, flags := range [][]string{{}, {"--repair"}} {
		got := run(t, empty, append([]string{"reconcile"}, flags...)...)
		require.Equal(t, cmd.ExitDrift, got.code, got.stderr)
		require.Contains(t, got.stdout, "0 campaigns in mysql")
		require.Contains(t, got.stderr, "redis holds 2 campaigns that mysql does not have: spring, summer.")
	}
	requireOK(t, run(t, s.environ, "reconcile"))
}
