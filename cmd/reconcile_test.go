package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models/event"
)

type comparison struct {
	Redis, MySQL   map[string]any
	Backlog, Drift *int64
	Differences    []string
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(v), text)
}

// A claim on its way is backlog, not a difference.
func TestReconcileBeforeADriftAndAfterItsRepair(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	requireRefusal(t, run(t, s.environ, "reconcile", "--campaign", "spring"), cmd.ExitFailed, "no campaign spring")
	none := requireOK(t, run(t, s.environ, "reconcile"))
	require.True(t, strings.HasSuffix(none, "0 campaigns in mysql\n"), none)
	api := start(t, s.environ, "api")
	api.post("/campaigns", `{"id":"spring","kind":"coupon","total":10,"per_user":1}`)
	api.claim("spring", "u1", "u2", "u3", "u4", "u5")
	require.Regexp(t, `(?m)^spring +10 +5 +0 +0 +5 +\S+ +agree so far$`, requireOK(t, run(t, s.environ, "reconcile")))
	start(t, s.environ, "consumer") // it also tells MySQL of a repair's load
	api.synced("spring", 5)
	require.Zero(t, api.stop().code)

	before := s.number("SELECT COUNT(*) FROM reconciliations")
	got := run(t, s.environ, "reconcile")
	require.Regexp(t, `^campaign +total +redis +mysql +rows +backlog +drift +books\nspring +10 +5 +5 +5 +0 +0 +agree\n$`, requireOK(t, got))
	require.NotContains(t, got.stderr, "level=ERROR")
	require.Equal(t, before+1, s.number("SELECT COUNT(*) FROM reconciliations"), "each comparison is kept")
	var c comparison
	decode(t, requireOK(t, run(t, s.environ, "reconcile", "-o", "json")), &c)
	require.Equal(t, []int64{0, 0}, []int64{*c.Backlog, *c.Drift})
	require.Equal(t, []any{"open", 10.0, 5.0, 5.0}, []any{c.Redis["status"], c.Redis["total"], c.Redis["taken"], c.Redis["remaining"]})
	require.Equal(t, []any{10.0, 5.0, 5.0, 5.0}, []any{c.MySQL["total"], c.MySQL["claimed"], c.MySQL["remaining"], c.MySQL["synced_seq"]})
	require.Empty(t, c.Differences)
	require.Regexp(t, `"steps":(null|\[\])`, requireOK(t, run(t, s.environ, "reconcile", "--repair", "-o", "json")), "nothing to put right")

	require.NoError(t, s.rdb.HSet(t.Context(), state("spring"), "taken", "3").Err())
	got = run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stdout+got.stderr)
	require.Regexp(t, `(?m)^spring +10 +3 +5 +5 +0 +2 +DIFFER$`, got.stdout)
	require.Regexp(t, `(?m)^spring: .*\b3\b.*\b5\b`, got.stdout, "what differs, in both figures")
	require.Regexp(t, `(?m)^dibs: .*1 of 1 campaigns`, got.stderr)
	require.EqualValues(t, 2, s.number("SELECT drift FROM stock_watch WHERE campaign_id = 'spring'"))
	require.Zero(t, s.number("SELECT COUNT(*) FROM repairs"), "a comparison changes nothing")
	out := requireOK(t, run(t, s.environ, "reconcile", "--repair"))
	require.Regexp(t, `(?m)^spring +10 +5 +5 +5 +0 +0 +repaired$`, out)
	require.Regexp(t, `(?m)^spring: repaired redis: .* 3 units taken.* -> loaded again from the rows of claims`, out)
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM repairs WHERE campaign_id = 'spring' AND what = 'redis'"))
	require.Regexp(t, ` agree\n`, requireOK(t, run(t, s.environ, "reconcile")))
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

func TestArchiveOfAClosedCampaign(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	for id, shards := range map[string]string{"spring": "1", "autumn": "1", "summer": "2", "open": "1"} {
		serve.post("/campaigns", `{"id":"`+id+`","kind":"coupon","total":10,"per_user":1,"shards":`+shards+`}`)
		serve.claim(id, "u1", "u2", "u3", "u4", "u5")
	}
	for _, id := range []string{"spring", "autumn", "summer"} {
		serve.post("/campaigns/"+id+"/close", "{}")
	}
	require.Eventually(t, func() bool {
		return s.number("SELECT COUNT(*) FROM campaigns WHERE closed_told_at IS NOT NULL") == 3
	}, time.Minute, 20*time.Millisecond)

	require.Equal(t, cmd.ExitUsage, run(t, s.environ, "archive").code, "--before is required")
	require.Equal(t, cmd.ExitFailed, run(t, s.environ, "archive", "--before", "2100-01-01", "--campaign", "open").code)
	out := requireOK(t, run(t, s.environ, "archive", "--before", "2100-01-01T00:00:00Z", "--campaign", "spring", "-o", "json"))
	require.JSONEq(t, `{"campaign_id":"spring","archived":5,"left":0,"why":""}`, out)
	s.exec("ALTER TABLE claims_archive ADD CONSTRAINT picky CHECK (campaign_id <> 'summer')")
	got := run(t, s.environ, "archive", "--before", "2100-01-01")
	require.Equal(t, cmd.ExitFailed, got.code)
	require.Regexp(t, `(?m)^autumn +5 +0 *$`, got.stdout, "it says what it did before it failed")
	require.Contains(t, got.stderr, "summer")
	s.exec("ALTER TABLE claims_archive DROP CONSTRAINT picky")
	require.Regexp(t, `(?m)^summer +5 +0 *$`, requireOK(t, run(t, s.environ, "archive", "--before", "2100-01-01")))
	require.EqualValues(t, 15, s.number("SELECT COUNT(*) FROM claims_archive"))
	requireOK(t, run(t, s.environ, "reconcile"))
}

// gap restores MySQL to a dump older than the claim stream's begin, and starts
// serve, which has to notice.
func (s *servers) gap(db *gorm.DB, dump syncertest.Dump) (serve *running) {
	t := s.t
	t.Helper()
	require.NoError(t, dump.Restore(db))
	stream := lua.StreamKey(0)
	last := s.rdb.XRevRangeN(t.Context(), stream, "+", "-", 1).Val()[0].ID
	require.NoError(t, s.rdb.Set(t.Context(), lua.TrimmedKey(0), last, 0).Err())
	require.NoError(t, s.rdb.XTrimMaxLen(t.Context(), stream, 0).Err())
	return start(t, s.environ, "serve")
}

func eventuallyIs(t *testing.T, db *gorm.DB, want event.PartitionState) {
	t.Helper()
	eventually(t, "the partition is never "+string(want), func() bool {
		var state event.PartitionState
		require.NoError(t, db.Raw("SELECT state FROM streams WHERE partition_no = 0").Scan(&state).Error)
		return state == want
	})
}

func (r *running) eventuallyLost(campaign string, claimed, lost, remaining int64) {
	r.t.Helper()
	eventually(r.t, "what is lost is not counted", func() bool {
		var stock struct {
			Claimed, Remaining int64
			LostUnits          int64 `json:"lost_units"`
		}
		r.get("/v1/campaigns/"+campaign+"/stock").into(r.t, &stock)
		return stock.Claimed == claimed && stock.LostUnits == lost && stock.Remaining == remaining
	})
}

// Claims must continue during a gap, and `dibs reconcile` must name both times.
// Once an operator gives up the entries between, the campaign must be loaded
// again, and claims without a trace must be counted, not sold again.
func TestAnOperatorAcceptsAGap(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: s.dsn})
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	serve.claim("spring", "ada")
	serve.synced("spring", 1)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	dump := syncertest.DumpOf(t, db)
	requireRefusal(t, run(t, s.environ, "reconcile", "--accept-gap"), cmd.ExitFailed, "no partition has a gap")

	serve = start(t, s.environ, "serve")
	serve.claim("spring", "bob", "cid")
	serve.synced("spring", 3)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	serve = s.gap(db, dump)
	serve.claim("spring", "dan")
	eventuallyIs(t, db, event.PartitionGap)
	got := run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stderr)
	require.Regexp(t, `applied the claim stream up to 2\S+Z, and it begins at 2\S+Z.*--accept-gap`, got.stderr)
	require.Regexp(t, `begins at 2\S+Z\. Roll MySQL&#39;s binary log forward`, serve.get("/console/health").body)

	require.Contains(t, requireOK(t, run(t, s.environ, "reconcile", "--accept-gap")), "given up")
	eventuallyIs(t, db, event.PartitionOK)
	serve.claim("spring", "eve")
	serve.eventuallyLost("spring", 3, 2, 5)
	require.Contains(t, serve.get("/v1/audit").body, `"action":"gap.accepted"`)
}

// As above, but the processes that answered are gone: only Redis knows how much
// of a campaign was claimed.
func TestAnOperatorAcceptsAGapThatOnlyRedisCounts(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: s.dsn})
	serve := start(t, s.environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10}`)
	serve.post("/campaigns", `{"id":"wide","kind":"coupon","total":10,"shards":2}`)
	ids := []string{"spring", "wide"}
	for _, id := range ids {
		serve.claim(id, "ada")
		serve.synced(id, 1)
	}
	dump := syncertest.DumpOf(t, db)
	for _, id := range ids {
		serve.claim(id, "bob", "cid")
		serve.synced(id, 3)
	}
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	serve = s.gap(db, dump)
	eventuallyIs(t, db, event.PartitionGap)
	require.Contains(t, requireOK(t, run(t, s.environ, "reconcile", "--accept-gap")), "given up")
	eventuallyIs(t, db, event.PartitionOK)
	for _, id := range ids {
		serve.claim(id, "dan", "eve", "fay", "gus") // of both shards
		serve.eventuallyLost(id, 5, 2, 3)
	}
}
