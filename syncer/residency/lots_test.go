package residency_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/residency"
	"dibs/syncer/shards"
)

// spread is a campaign of several shards, all lots of which are in Redis.
type spread struct {
	*syncertest.Stack
	id    string
	mover *shards.Mover
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
	s.mover = shards.New(s.DB, s.Scripts, s.Hydrator(), syncertest.Quiet(), nil)
	for _, id := range s.lots() {
		require.NoError(t, s.Hydrate(id))
	}
	return s
}

func (s *spread) lots() []string {
	c := s.Campaign(s.id)
	return c.LotIDs()
}

func (s *spread) lot(number int) string { return models.ShardID(s.id, number) }

func (s *spread) view(number int) lua.ShardView {
	return s.Scripts.Shards(s.T.Context(), []string{s.lot(number)})[0]
}

func (s *spread) refill(shard int, units int64) {
	s.T.Helper()
	_, err := s.mover.Refill(s.T.Context(), s.id, models.Need{Shard: shard, Units: units})
	require.NoError(s.T, err)
}

// forgetEvents has the consumers pass over what the stream holds, as if MySQL had lost it.
func (s *spread) forgetEvents() {
	s.T.Helper()
	_, at, err := s.Writer.Begin(s.T.Context(), 0)
	require.NoError(s.T, err)
	last, err := s.Redis.XRevRangeN(s.T.Context(), lua.StreamKey(0), "+", "-", 1).Result()
	require.NoError(s.T, err)
	skipped := models.Offset{EntryID: last[0].ID, EventID: fmt.Sprint(last[0].Values["_watermill_message_uuid"]), Read: at.Read + 1}
	require.NoError(s.T, s.Writer.Rewind(s.T.Context(), 0, at, skipped))
}

// free is what the lots of the campaign have together.
func (s *spread) free() (n int64) {
	views := s.Scripts.Shards(s.T.Context(), s.lots())
	for i := range views {
		n += views[i].Free()
	}
	return n
}

// A round of a load that is not confirmed, as a peer is loaded in the meantime, leaves what the lot was credited for the next round.
func TestLots_ASecondRoundOfALoadKnowsWhatTheFirstFoundInRedis(t *testing.T) {
	t.Parallel()
	for name, packets := range map[string]bool{"units": false, "packets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpread(t, 2, packets)
			s.refill(2, 20)
			s.forgetEvents()
			before := s.view(2)
			require.NoError(t, s.Scripts.Fence(t.Context(), s.lot(2), before.Epoch))
			rounds := 0
			_, err := residency.HydrateWithStep(t.Context(), s.Hydrator(), s.lot(2), func(step string) {
				if step != "loaded" {
					return
				}
				if rounds++; rounds == 1 {
					s.Exec("UPDATE lots SET load_attempts = load_attempts + 2 WHERE id = ?", s.lot(1))
				}
			})
			require.NoError(t, err)
			require.Equal(t, 2, rounds)
			after := s.view(2)
			require.NoError(t, after.Err)
			require.Equal(t, before.In, after.In)
			require.Equal(t, before.Free(), after.Free())
			require.EqualValues(t, 40, s.free())
			if packets {
				require.Equal(t, after.Free(), s.InLists(s.lot(2)))
			}
			_, err = s.mover.Check(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 40, s.free())
		})
	}
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

// An eviction and a load bring each lot its packets again, also those that it has debited and that its peer has not been credited yet.
func TestLots_ALoadBringsEachLotItsPackets(t *testing.T) {
	t.Parallel()
	s := newSpread(t, 2, true)
	s.refill(1, 8)
	s.refill(2, 2)
	reserve := s.view(models.ReserveLot)
	c := s.Campaign(s.lot(models.ReserveLot))
	_, err := s.Scripts.Debit(t.Context(), &c, &lua.Debit{Epoch: reserve.Epoch, Peer: 1, Seen: reserve.Out[1], Units: 3})
	require.NoError(t, err)
	s.Sync()
	had := []int64{s.InLists(s.lot(1)), s.InLists(s.lot(2)), s.InLists(s.lot(models.ReserveLot))}
	require.Positive(t, s.Evict(0))
	for _, id := range s.lots() {
		require.Zero(t, s.InLists(id))
		require.NoError(t, s.Hydrate(id))
	}
	for i, lot := range []int{1, 2, models.ReserveLot} {
		require.Equal(t, had[i], s.InLists(s.lot(lot)))
	}
	require.EqualValues(t, 37, s.free())
	_, err = s.mover.Check(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 40, s.free(), "what was in flight has come")
	s.Sync()
	require.Empty(t, s.Compare(s.id).Differences)
}
