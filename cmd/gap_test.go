package cmd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/lua"
)

// MySQL is restored to a dump older than the claim stream's begin. Claims
// must continue, and `dibs reconcile` must name both times. Once an operator
// gives up the entries between, the campaign must be loaded again, and claims
// without a trace must be counted, not sold again.
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
	require.NoError(t, dump.Restore(db))
	stream := lua.StreamKey(0)
	last := s.rdb.XRevRangeN(t.Context(), stream, "+", "-", 1).Val()[0].ID
	require.NoError(t, s.rdb.Set(t.Context(), lua.TrimmedKey(0), last, 0).Err())
	require.NoError(t, s.rdb.XTrimMaxLen(t.Context(), stream, 0).Err())

	serve = start(t, s.environ, "serve")
	serve.claim("spring", "dan")
	state := func() (state string) {
		require.NoError(t, db.Raw("SELECT state FROM streams WHERE partition_no = 0").Scan(&state).Error)
		return state
	}
	eventually(t, "no process notices", func() bool { return state() == "gap" })
	got := run(t, s.environ, "reconcile")
	require.Equal(t, cmd.ExitDrift, got.code, got.stderr)
	require.Regexp(t, `applied the claim stream up to 2\S+Z, and it begins at 2\S+Z.*--accept-gap`, got.stderr)

	require.Regexp(t, `begins at 2\S+Z\. Roll MySQL&#39;s binary log forward`, serve.get("/console/health").body)

	require.Contains(t, requireOK(t, run(t, s.environ, "reconcile", "--accept-gap")), "given up")
	require.Eventually(t, func() bool { return state() == "ok" }, 15*time.Second, 20*time.Millisecond)
	serve.claim("spring", "eve")
	eventually(t, "what is lost is not counted", func() bool {
		var stock struct {
			Claimed, Remaining int64
			LostUnits          int64 `json:"lost_units"`
		}
		serve.get("/v1/campaigns/spring/stock").into(t, &stock)
		return stock.Claimed == 3 && stock.LostUnits == 2 && stock.Remaining == 5
	})
	require.Contains(t, serve.get("/v1/audit").body, `"action":"gap.accepted"`)
}
