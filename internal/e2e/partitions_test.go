package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// Campaigns of four streams are used at once, on one Redis and on a cluster
// whose nodes share the streams. Their data must not mix.
func TestManyCampaignsOverPartitionsKeepTheirBooksApart(t *testing.T) {
	t.Parallel()
	const partitions, campaigns = 4, 6
	onEachRedis(t, func(t *testing.T, w setup) {
		users := testenv.Pick(400, 5_000)
		w.partitions, w.apis, w.consumers = partitions, 2, 2
		s := newSystem(t, w)
		var opened []campaign
		var rushes []*rush
		for i := range campaigns {
			c := openCampaign(t, s.apis[i%2].url, campaign{ID: fmt.Sprintf("rush-%d", i), Total: int64(users) / 2, PerUser: 2})
			opened = append(opened, c)
			rushes = append(rushes, startRush(t, crowd.Plan{
				BaseURLs: s.urls(), CampaignID: c.ID, Users: users, Connections: 20,
				// the same users everywhere
				Quantity: func(user int) int64 { return int64(user%2) + 1 },
			}))
		}
		streams := map[int]bool{}
		for i, c := range opened {
			s.checkBooks(c, rushes[i].wait(), true)
			streams[lua.PartitionOf(c.ID, partitions)] = true
		}
		require.Greater(t, len(streams), 2, "the campaigns lie in several streams")
	})
}
