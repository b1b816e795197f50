package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// lotsOf are some lots of a campaign in Redis, by their numbers from 1, the first of which has the units.
type lotsOf struct {
	t    *testing.T
	rdb  redis.UniversalClient
	s    *lua.Scripts
	lots map[int]*models.Campaign
}

func newLots(t *testing.T, rdb redis.UniversalClient, kind models.Kind, units int64) *lotsOf {
	t.Helper()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	l := &lotsOf{t: t, rdb: rdb, s: s, lots: map[int]*models.Campaign{}}
	id := testenv.UniqueID(t, "c")
	for n := 1; n <= 3; n++ {
		c := &models.Campaign{
			ID: models.ShardID(id, n), Kind: kind, Status: models.StatusOpen, Shards: 3, TimeZone: "UTC", Version: 1, Epoch: 1,
		}
		if n == 1 && kind == models.KindCoupon {
			c.Total = units
		}
		loaded, err := s.Load(t.Context(), c)
		require.NoError(t, err)
		require.True(t, loaded)
		l.lots[n] = c
	}
	return l
}

func (l *lotsOf) field(lot int, name string) int64 {
	l.t.Helper()
	n, err := l.rdb.HGet(l.t.Context(), l.s.KeysOf(l.lots[lot].ID).State, name).Int64()
	if err != nil {
		require.ErrorIs(l.t, err, redis.Nil)
	}
	return n
}

func (l *lotsOf) out(from, to int) int64 { return l.field(from, fmt.Sprint("out:", to)) }
func (l *lotsOf) in(to, from int) int64  { return l.field(to, fmt.Sprint("in:", from)) }

func (l *lotsOf) debit(from, to int, seen, units int64, floors map[int]int64) (lua.Transferred, error) {
	return l.s.Debit(l.t.Context(), l.lots[from], &lua.Debit{Epoch: 1, Peer: to, Seen: seen, Units: units, Floors: floors})
}

func (l *lotsOf) credit(to, from int, load, upto int64) (lua.Transferred, error) {
	before := l.in(to, from)
	packets, err := l.s.Debited(l.t.Context(), l.lots[from].ID, 1, to, before)
	require.NoError(l.t, err)
	packets = packets[:max(0, min(int64(len(packets)), upto-before))]
	return l.s.Credit(l.t.Context(), l.lots[to], &lua.Credit{
		Seen: lua.Position{Epoch: 1}, Peer: from, PeerLoad: load, Before: before, Upto: upto, Packets: packets,
	})
}

// events are the types of the events of a lot's stream.
func (l *lotsOf) events() (types []string) {
	entries, err := l.s.Entries(l.t.Context(), 0, lua.EntryID{}, 100)
	require.NoError(l.t, err)
	for i := range entries {
		e, err := models.DecodeEvent([]byte(entries[i].Payload))
		require.NoError(l.t, err, entries[i].Payload)
		if e.CampaignID == l.lots[1].ID[:len(l.lots[1].ID)-2] {
			types = append(types, fmt.Sprint(e.Type, " ", e.Shard))
		}
	}
	return types
}

func TestUnitsGoOnceHoweverOftenACreditIsSent(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindCoupon, 10)
		got, err := l.debit(1, 2, 0, 6, nil)
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{Upto: 6, Units: 6}, got)
		_, err = l.debit(1, 2, 0, 1, nil)
		require.ErrorIs(t, err, lua.ErrMovedOn)
		got, err = l.debit(1, 2, 6, 100, nil)
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{Upto: 10, Units: 4}, got, "what is free")
		for i, upto := range []int64{6, 6, 10, 6, 10} {
			got, err := l.credit(2, 1, 1, upto)
			require.NoError(t, err)
			require.Equal(t, max(6, l.in(2, 1)), got.Upto)
			require.Equal(t, []int64{6, 0, 4, 0, 0}[i], got.Units)
		}
		require.Equal(t, []int64{0, 10, 2, 2}, []int64{l.field(1, "total"), l.field(2, "total"), l.field(2, "ups"), l.field(2, "tseq")})
		require.Equal(t, []string{"units.debited 1", "units.debited 1", "units.credited 2", "units.credited 2"}, l.events())
	})
}

// A lot that forgot debits learns by the floors that its peers have the units, and owes what it has not got any more.
func TestFloorsTellALotWhatItForgot(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindCoupon, 10)
		got, err := l.debit(1, 2, 0, 0, map[int]int64{2: 4, 3: 9})
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{Upto: 4}, got)
		require.Equal(t, []int64{0, 3, 4, 9}, []int64{l.field(1, "total"), l.field(1, "owed"), l.out(1, 2), l.out(1, 3)})
		require.Equal(t, int64(2), l.field(1, "tseq"), "a debit of each of the two")
		got, err = l.debit(1, 2, 4, 5, map[int]int64{2: 4, 3: 9})
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{Upto: 4}, got)
		require.Equal(t, []int64{2, 3}, []int64{l.field(1, "tseq"), l.field(1, "owed")}, "nothing is free, and nothing new")
		_, err = l.s.Credit(t.Context(), l.lots[1], &lua.Credit{Seen: lua.Position{Epoch: 1}, Peer: 3, PeerLoad: 1, Upto: 5})
		require.NoError(t, err)
		require.Equal(t, []int64{2, 0}, []int64{l.field(1, "total"), l.field(1, "owed")}, "what is owed comes first")
	})
}

func TestACreditOfAnEarlierLoadOrToALotThatWasRolledBackIsRefused(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindCoupon, 10)
		_, err := l.debit(1, 2, 0, 5, nil)
		require.NoError(t, err)
		got, err := l.credit(2, 1, 2, 0)
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{}, got, "it tells a load")
		_, err = l.credit(2, 1, 1, 5)
		require.ErrorIs(t, err, lua.ErrPeer)
		require.Zero(t, l.field(2, "total"))
		_, err = l.s.Credit(t.Context(), l.lots[2], &lua.Credit{Seen: lua.Position{Epoch: 2}, Peer: 1, PeerLoad: 2, Upto: 5})
		require.ErrorIs(t, err, lua.ErrOther)
		for _, seen := range []lua.Position{{Epoch: 1, Seq: 1}, {Epoch: 1, TSeq: 1}} {
			require.NoError(t, rdb.HSet(t.Context(), l.s.KeysOf(l.lots[2].ID).State, "status", "open").Err())
			_, err = l.s.Credit(t.Context(), l.lots[2], &lua.Credit{Seen: seen, Peer: 1, PeerLoad: 2, Upto: 5})
			require.ErrorIs(t, err, lua.ErrBehind)
			require.Equal(t, "fenced", rdb.HGet(t.Context(), l.s.KeysOf(l.lots[2].ID).State, "status").Val())
		}
		_, err = l.debit(2, 1, 0, 1, nil)
		require.ErrorIs(t, err, lua.ErrOther, "it is fenced")
		_, err = l.s.Debit(t.Context(), &models.Campaign{ID: l.lots[1].ID + "9"}, &lua.Debit{})
		require.ErrorIs(t, err, lua.ErrAbsent)
	})
}

// Whatever claims wait for, units that were debited are not given to others before every connected replica has the debit. Who need not wait
// does not.
func TestADebitWaitsForEachReplica(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		l := newLots(t, connect(t, p.primary.URL()), models.KindCoupon, 10)
		_, err := l.debit(1, 2, 0, 2, nil)
		require.NoError(t, err)
		p.replica.Pause()
		_, err = l.s.Debit(t.Context(), l.lots[1], &lua.Debit{Epoch: 1, Peer: 2, Seen: 2, Units: 1, NeedNotWait: true})
		require.NoError(t, err)
		for _, units := range []int64{3, 0} { // nor by a debit of nothing, which speaks for what is in flight
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = l.s.Debit(ctx, l.lots[1], &lua.Debit{Epoch: 1, Peer: 2, Seen: l.out(1, 2), Units: units})
			cancel()
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
			require.ErrorContains(t, err, "0 of 1 replicas")
		}
		p.replica.Resume()
		got, err := l.debit(1, 2, 6, 0, nil)
		require.NoError(t, err)
		require.EqualValues(t, 6, got.Upto)
	})
}

// Movers at random, which die between any two steps and send old credits again: in the end all units are there, once.
func TestUnitsAreNeitherLostNorDoubledByTransfers(t *testing.T) {
	for _, kind := range []models.Kind{models.KindCoupon, models.KindPacket} {
		t.Run(string(kind), func(t *testing.T) {
			eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
				const units = 40
				l := newLots(t, rdb, kind, units)
				if kind == models.KindPacket {
					_, err := l.s.Push(t.Context(), l.lots[1].ID, &lua.Push{
						Epoch: 1, Upto: units, Units: units, Packets: packetsNamed(1, units),
					})
					require.NoError(t, err)
				}
				seed := rand.Uint64()
				random := rand.New(rand.NewPCG(seed, 1))
				for range 300 {
					from, to := 1+random.IntN(3), 1+random.IntN(3)
					if from == to {
						continue
					}
					if random.IntN(2) == 0 {
						_, err := l.debit(from, to, l.out(from, to), 1+random.Int64N(9), map[int]int64{1: l.in(1, from), 2: l.in(2, from), 3: l.in(3, from)})
						require.NoError(t, err, seed)
					} else {
						_, err := l.credit(to, from, 1, random.Int64N(1+l.out(from, to)))
						require.NoError(t, err, seed)
					}
				}
				total := int64(0)
				for from := 1; from <= 3; from++ {
					for to := 1; to <= 3; to++ {
						if from != to {
							_, err := l.credit(to, from, 1, l.out(from, to))
							require.NoError(t, err, seed)
						}
					}
				}
				packets := map[string]int{}
				for n := 1; n <= 3; n++ {
					total += l.field(n, "total")
					require.Zero(t, l.field(n, "owed"))
					list := rdb.LRange(t.Context(), l.s.KeysOf(l.lots[n].ID).Packets(1, 0), 0, -1).Val()
					for _, packet := range list {
						packets[packet]++
					}
					if kind == models.KindPacket {
						require.Len(t, list, int(l.field(n, "total")), seed)
					}
				}
				require.EqualValues(t, units, total, seed)
				if kind == models.KindPacket {
					require.Len(t, packets, units, seed)
				}
				for packet, n := range packets {
					require.Equal(t, 1, n, "%s, seed %d", packet, seed)
				}
			})
		})
	}
}

// Packets that are not released stay where they are.
func TestADebitTakesReleasedPackets(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindPacket, 0)
		for _, p := range []lua.Push{
			{Epoch: 1, Upto: 3, Units: 3, Packets: packetsNamed(1, 3)},
			{Epoch: 1, After: 3, Upto: 5, Units: 2, ReleaseMs: 1, Packets: packetsNamed(4, 5)},
			{Epoch: 1, After: 5, Upto: 9, Units: 4, ReleaseMs: 9e12, Packets: packetsNamed(6, 9)},
		} {
			_, err := l.s.Push(t.Context(), l.lots[1].ID, &p)
			require.NoError(t, err)
		}
		got, err := l.debit(1, 2, 0, 7, nil)
		require.NoError(t, err)
		require.Equal(t, lua.Transferred{Upto: 5, Units: 5}, got)
		_, err = l.credit(2, 1, 1, 4)
		require.NoError(t, err)
		_, err = l.credit(2, 1, 1, 5)
		require.NoError(t, err)
		require.Equal(t, []string{"4:p4", "5:p5"}, rdb.LRange(t.Context(), l.s.KeysOf(l.lots[2].ID).Packets(1, 1), 0, -1).Val())
		require.Equal(t, []int64{4, 5}, []int64{l.field(1, "total"), l.field(2, "total")})
		_, err = l.debit(1, 2, 5, 1, map[int]int64{3: 1})
		require.ErrorIs(t, err, lua.ErrPeer, "a packet that it does not know to have debited")
	})
}

// packetsNamed are packets p<first> to p<last>, of as many minor units.
func packetsNamed(first, last int64) (all []models.Packet) {
	for n := first; n <= last; n++ {
		all = append(all, models.Packet{ID: fmt.Sprintf("p%d", n), Amount: n})
	}
	return all
}
