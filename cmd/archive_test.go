package cmd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestArchiveOfAClosedCampaign(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	serve := start(t, s.environ, "serve")
	for id, shards := range map[string]string{"spring": "1", "summer": "2", "open": "1"} {
		serve.post("/campaigns", `{"id":"`+id+`","kind":"coupon","total":10,"per_user":1,"shards":`+shards+`}`)
		serve.claim(id, "u1", "u2", "u3", "u4", "u5")
	}
	serve.post("/campaigns/spring/close", "{}")
	serve.post("/campaigns/summer/close", "{}")
	require.Eventually(t, func() bool {
		return s.number("SELECT COUNT(*) FROM campaigns WHERE closed_told_at IS NOT NULL") == 2
	}, time.Minute, 20*time.Millisecond)

	require.Equal(t, 2, run(t, s.environ, "archive").code, "--before is required")
	require.Equal(t, 1, run(t, s.environ, "archive", "--before", "2100-01-01", "--campaign", "open").code)
	out := requireOK(t, run(t, s.environ, "archive", "--before", "2100-01-01T00:00:00Z", "--campaign", "spring", "-o", "json"))
	require.JSONEq(t, `{"campaign_id":"spring","archived":5,"left":0,"why":""}`, out)
	require.EqualValues(t, 5, s.number("SELECT COUNT(*) FROM claims_archive"))

	for _, want := range []string{`(?m)^summer +5 +0 *$`, `^campaign +archived +left +why\n$`} {
		require.Regexp(t, want, requireOK(t, run(t, s.environ, "archive", "--before", "2100-01-01")))
	}
	require.EqualValues(t, 10, s.number("SELECT COUNT(*) FROM claims_archive"))
	requireOK(t, run(t, s.environ, "reconcile"))
	require.Empty(t, run(t, s.environ, "reconcile", "--repair", "-o", "json", "--campaign", "spring").stderr)
	require.Zero(t, serve.stop().code)
}
