package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// Two API processes, two consumers and a syncer that trims behind them.
func TestRushGivesEveryUnitOnceAndNotOneMore(t *testing.T) {
	t.Parallel()
	users, connections := testenv.Pick(4_000, 20_000), testenv.Pick(100, 200)
	s := newSystem(t, setup{apis: 2, consumers: 2})
	for _, story := range []struct {
		name     string
		quantity func(user int) int64
		perUser  int64
		batch    int
	}{
		{name: "single units", perUser: 1},
		{name: "one to three units", perUser: 3, quantity: func(user int) int64 { return int64(user%3) + 1 }},
		{name: "batches", perUser: 1, batch: 50},
	} {
		total := int64(users) / 20
		if story.batch == 0 && story.quantity == nil {
			total = 1_000
		}
		c := openCampaign(t, s.apis[0].url, campaign{Total: total, PerUser: story.perUser})
		tally := startRush(t, crowd.Plan{
			BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: connections, Quantity: story.quantity, Batch: story.batch,
			Again: func(user int) bool { return user%10 == 0 },
		}).wait()
		s.checkBooks(c, tally, true)
		require.Equal(t, c.Total, tally.Units, story.name)
		if story.quantity == nil {
			require.Equal(t, users-tally.Accepted, tally.Refused["sold_out"], story.name)
		}
		t.Logf("%s: %d requests in %s, %d replayed, %d in trouble", story.name, tally.Sent, tally.Took, tally.Replayed, tally.Unready+tally.Unknown)
	}
	requireTrimmed(t, s)
}

// requireTrimmed waits until at most one node of read entries is
// left: XTRIM removes whole nodes.
func requireTrimmed(t testing.TB, s *system) {
	t.Helper()
	const node = 100 // stream-node-max-entries
	require.Eventually(t, func() bool {
		n, err := s.rdb.XLen(t.Context(), lua.StreamKey(0)).Result()
		return err == nil && n <= node
	}, upTimeout, pollEvery)
}
