package reconcile_test

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/shards"

	"github.com/stretchr/testify/require"
)

// sale is a campaign of two shards whose units, or packets, move as the test says.
type sale struct {
	*syncertest.Stack
	id    string
	mover *shards.Mover

	reconciler *reconcile.Reconciler
	maintainer *residency.Maintainer
	users      int
}

func newSale(t *testing.T, packets bool, shardsOf ...int) *sale {
	t.Helper()
	s := &sale{Stack: syncertest.NewStack(t)}
	n := cmp.Or(append(shardsOf, 2)...)
	if packets {
		s.id = s.Create(0, func(c *models.Campaign) {
			c.Kind, c.Currency, c.SenderID, c.Shards = models.KindPacket, "CNY", "boss", n
		})
		s.AddPackets(s.id, syncertest.ListOf("p", 40))
	} else {
		s.id = s.Create(40, func(c *models.Campaign) { c.Shards = n })
	}
	s.mover = shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
	s.reconciler, s.maintainer = s.Leader()
	require.NoError(t, s.Hydrate(models.ShardID(s.id, models.ReserveLot)))
	return s
}

// refill has a shard ask for units. done tells that there are none.
func (s *sale) refill(shard int, units int64) (done bool) {
	s.T.Helper()
	refill, err := s.mover.Refill(s.T.Context(), s.id, models.Need{Shard: shard, Units: units})
	require.NoError(s.T, err)
	return refill.SoldOutFrom > 0
}

// take has users claim so many in a shard, and returns how many got something.
func (s *sale) take(shard, n int) (got int) {
	s.T.Helper()
	s.users++
	for _, r := range s.Claim(models.ShardID(s.id, shard), syncertest.Asks(fmt.Sprint(s.users), n)...) {
		if r.Outcome == models.OutcomeClaimed {
			got++
		}
	}
	s.Sync()
	return got
}

// sellOut has users of both shards take what is left, and returns how many got something.
func (s *sale) sellOut() (got int) {
	s.T.Helper()
	for round := range 100 {
		shard := 1 + round%2
		done := s.refill(shard, 1)
		n := s.take(shard, 50)
		if got += n; done && n == 0 {
			return got
		}
	}
	s.T.Fatal("it is not sold out after 100 refills")
	return 0
}

// The figures of a campaign are of the moments at which its shards were compared. Claims that reach MySQL while the comparison is under way
// do not make what it says of Redis and of MySQL differ by more than the backlog and the drift that it says.
func TestCompare_FiguresOfAShardedCampaignAgree(t *testing.T) {
	t.Parallel()
	s := &sale{Stack: syncertest.NewStack(t)}
	s.id = s.Create(100_000, func(c *models.Campaign) { c.Shards = 8 })
	for shard := 1; shard <= 8; shard++ {
		require.NoError(t, s.Hydrate(models.ShardID(s.id, shard)))
	}
	var stop atomic.Bool
	var claims sync.WaitGroup
	defer claims.Wait()
	defer stop.Store(true)
	claims.Go(func() {
		for !stop.Load() {
			for shard := 1; shard <= 8; shard++ {
				s.Claim(models.ShardID(s.id, shard), syncertest.Asks("u", 2)...)
				s.Sync()
			}
		}
	})
	for settled := 0; settled < 40; {
		found, err := s.Reconciler().Compare(t.Context(), s.id, reconcile.DepthBooks)
		require.NoError(t, err)
		if *found.Backlog != 0 || *found.Drift != 0 {
			continue
		}
		settled++
		require.Equal(t, found.Redis.Remaining, found.MySQL.Remaining)
	}
	require.Less(t, s.Campaign(s.id).Remaining, int64(100_000))
}

func look(h *syncertest.Stack) (broken int) {
	h.T.Helper()
	broken, err := h.Maintainer().Watch(h.T.Context())
	require.NoError(h.T, err)
	return broken
}

func refill(h *syncertest.Stack) (refilled int) {
	h.T.Helper()
	refilled, err := h.Maintainer().Attend(h.T.Context(), true)
	require.NoError(h.T, err)
	return refilled
}
