package residency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/models"
)

// spread is a campaign of several shards, all of which are in Redis.
type spread struct {
	*syncertest.Stack
	id string
}

func newSpread(t *testing.T, shardCount int, packets bool) *spread {
	t.Helper()
	s := &spread{Stack: syncertest.NewStack(t)}
	s.id = s.Create(40, func(c *models.Campaign) {
		c.Shards = shardCount
		if packets {
			c.Kind, c.Currency, c.SenderID, c.Total = models.KindPacket, "CNY", "boss", 0
		}
	})
	if packets {
		s.AddPackets(s.id, syncertest.ListOf("p", 40))
	}
	for _, id := range s.lots() {
		require.NoError(t, s.Hydrate(id))
	}
	return s
}

func (s *spread) lots() []string {
	c := s.Campaign(s.id)
	return c.ShardIDs()
}

func (s *spread) lot(number int) string { return models.ShardID(s.id, number) }

// free is what the lots of the campaign have together.
func (s *spread) free() (n int64) {
	views := s.Scripts.Shards(s.T.Context(), s.lots())
	for i := range views {
		n += views[i].Free()
	}
	return n
}

// Processes that load the lots of a campaign at the same time wait for each other: no load is for nothing.
func TestLots_ProcessesLoadThemOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := newSpread(t, 4, false)
	for _, id := range s.lots() {
		require.NoError(t, s.Scripts.Fence(t.Context(), id, 1))
	}
	var loads sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for range 3 {
		h := s.Hydrator()
		for _, id := range s.lots() {
			loads.Go(func() {
				_, err := h.Hydrate(context.WithoutCancel(t.Context()), id)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, err)
				}
			})
		}
	}
	loads.Wait()
	require.Empty(t, failed)
	for _, id := range s.lots() {
		require.EqualValues(t, 2, s.Campaign(id).LoadAttempts, id)
	}
	require.EqualValues(t, 40, s.free())
}

// An eviction and a load bring each shard its packets again.
func TestLots_ALoadBringsEachShardItsPackets(t *testing.T) {
	t.Parallel()
	s := newSpread(t, 3, true)
	for i, want := range []int64{14, 13, 13} {
		require.Equal(t, want, s.InLists(s.lot(i+1)))
	}
	s.Claim(s.lot(1), syncertest.Asks("u", 3)...)
	s.AddPackets(s.id, syncertest.ListOf("q", 5))
	s.Sync()
	require.Equal(t, 3, s.Evict(0))
	for i, id := range s.lots() {
		require.Zero(t, s.InLists(id))
		require.NoError(t, s.Hydrate(id))
		require.Equal(t, []int64{12, 15, 15}[i], s.InLists(id))
	}
	require.Empty(t, s.Compare(s.id).Differences)
}
