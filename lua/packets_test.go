package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

type packets struct {
	*bundle
	pushed int64
}

func newPackets(t testing.TB, rdb redis.UniversalClient) *packets {
	t.Helper()
	return newPacketsOf(t, rdb, func(*models.Campaign) {})
}

func newPacketsOf(t testing.TB, rdb redis.UniversalClient, define func(c *models.Campaign)) *packets {
	t.Helper()
	return &packets{bundle: newBundle(t, rdb, func(c *models.Campaign) {
		// MySQL's total includes packets that Redis does not have yet
		c.Kind, c.Currency, c.Total, c.PerUser = models.KindPacket, "CNY", 1000, 1
		define(c)
	})}
}

// push sends pairs of an id and an amount to Redis, for release at a
// time after noon; 0 is at once.
func (p *packets) push(after time.Duration, pairs ...any) {
	p.t.Helper()
	push := lua.Push{Epoch: p.c.Epoch, After: p.pushed, Upto: p.pushed + int64(len(pairs)/2), Units: int64(len(pairs) / 2)}
	if after > 0 {
		push.ReleaseMs = noon.Add(after).UnixMilli()
	}
	for i := 0; i < len(pairs); i += 2 {
		push.Packets = append(push.Packets, models.Packet{ID: pairs[i].(string), Amount: int64(pairs[i+1].(int))})
	}
	pushed, err := p.s.Push(p.t.Context(), p.c.ID, &push)
	require.NoError(p.t, err)
	require.Equal(p.t, push.Upto, pushed)
	p.pushed = pushed
}

// take claims for users in one call. It
// returns "id:amount" or the outcome of each.
func (p *packets) take(users ...string) []string {
	p.t.Helper()
	reqs := make([]lua.ClaimRequest, len(users))
	for i, user := range users {
		reqs[i] = want(user, 1, "")
	}
	return gotOf(p.claim(reqs...))
}

func gotOf(replies []lua.ClaimReply) []string {
	got := make([]string, len(replies))
	for i := range replies {
		got[i] = string(replies[i].Outcome)
		if replies[i].Outcome.Took() {
			got[i] = fmt.Sprint(replies[i].Claim.PacketID, ":", *replies[i].Claim.Amount)
		}
	}
	return got
}

func (p *packets) at(after time.Duration) { p.setClock(noon.Add(after)) }

func TestPackets_AnswerEventAndReplayTellTheSame(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPackets(t, rdb)
		p.push(0, "x.1_-", 999_999_999_999_999, "y", 1)
		keyed, bare := want("u", 1, "k"), want("v", 1, "")
		first := p.claim(keyed, bare)
		require.Equal(t, []string{"x.1_-:999999999999999", "y:1"}, gotOf(first))
		require.Equal(t, "CNY", first[0].Claim.Currency)
		other := keyed
		other.UserID = "w"
		again := p.claim(bare, keyed, other)
		require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeReplayed, models.OutcomeSoldOut}, outcomesOf(again),
			"a key is its user's")
		require.Equal(t, []models.Claim{first[1].Claim, first[0].Claim}, []models.Claim{again[0].Claim, again[1].Claim})
		for i, e := range p.events() {
			c := first[i].Claim
			require.Equal(t, []any{c.ID, c.PacketID, *c.Amount, "CNY", c.Seq}, []any{e.ID, e.PacketID, *e.Amount, e.Currency, e.Seq})
		}
		_, _, err := p.s.Claim(t.Context(), p.meta, []lua.ClaimRequest{want("z", 2, "")})
		require.ErrorIs(t, err, lua.ErrUnavailable, "a packet is one")
	})
}

// A load from MySQL restores the records, so a retry still gets its packet.
func TestPackets_ComeBackWithARebuild(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPackets(t, rdb)
		p.push(0, "a", 5, "b", 6)
		p.push(time.Hour, "c", 7)
		keyed := want("u", 1, "k")
		first := p.claim(keyed)[0].Claim
		lists := rdb.ZRange(t.Context(), p.keys.Waves, 0, -1).Val()
		require.Len(t, lists, 2)
		p.c.Epoch = 2
		reload(t, p.s, p.c, func(st *lua.Staging) {
			require.NoError(t, st.Add(t.Context(), &lua.ClaimRecord{
				ID: []byte(first.ID), UserID: []byte("u"), KeyDigest: []byte(p.events()[0].Key), Seq: 1, Quantity: 1, At: first.ClaimedAt.Time,
				Live: true, PacketID: []byte("a"), Amount: 5,
			}))
			require.NoError(t, st.AddPacket(t.Context(), &models.Packet{ID: "b", Amount: 6}, 0))
			st.SetPushed(3)
			st.Seq = 1
			st.Sold = 1
		})
		require.Zero(t, rdb.Exists(t.Context(), lists...).Val(), "what the earlier load left is gone")
		require.Equal(t, []int64{2, 1, 3}, []int64{p.state().Total, p.state().Taken, p.state().Pushed})
		require.Equal(t, []string{"b:6"}, p.take("w"))
		require.Equal(t, []string{"sold_out"}, p.take("w"))
		require.Equal(t, first, p.claim(keyed)[0].Claim)
	})
}

// Packets stay in their shard, which itself answers
// that they are sold out or not released yet.
func TestPackets_OfAShardAreNeverDry(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPacketsOf(t, rdb, func(c *models.Campaign) { c.ID, c.Shards = models.ShardID(c.ID, 3), 4 })
		require.Equal(t, []string{"sold_out"}, p.take("ada"))
		p.push(time.Hour, "p1", 1)
		require.Equal(t, []string{"not_released"}, p.take("ada"))
		p.push(0, "p2", 2)
		require.Equal(t, []string{"p2:2", "not_released"}, p.take("ada", "bob"))
	})
}

func TestPush_IsOnceHoweverOftenItIsSent(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPackets(t, rdb)
		push := &lua.Push{Epoch: 1, After: 0, Upto: 4, Units: 2, Packets: []models.Packet{{ID: "a", Amount: 1}, {ID: "b", Amount: 2}}}
		for range 3 {
			pushed, err := p.s.Push(t.Context(), p.c.ID, push)
			require.NoError(t, err)
			require.EqualValues(t, 4, pushed)
		}
		require.Equal(t, []int64{2, 4}, []int64{p.state().Total, p.state().Pushed})
		for name, spoil := range map[string]func(c lua.Push) lua.Push{
			"another load": func(c lua.Push) lua.Push { c.After, c.Epoch = 4, 2; return c },
			"too many": func(c lua.Push) lua.Push {
				c.After, c.Packets = 4, make([]models.Packet, lua.PushMax+1)
				return c
			},
		} {
			c := spoil(*push)
			before := dump(t, rdb)
			_, err := p.s.Push(t.Context(), p.c.ID, &c)
			require.Error(t, err, name)
			require.Equal(t, before, dump(t, rdb), name)
		}
		_, err := p.s.Push(t.Context(), "none", push)
		require.ErrorIs(t, err, lua.ErrAbsent)
		_, errs := p.s.Fence(t.Context(), "loader", lua.FenceAny, []string{p.c.ID})
		require.NoError(t, errs[0])
		_, err = p.s.Push(t.Context(), p.c.ID, &lua.Push{Epoch: 1, After: 4, Upto: 5, Units: 1})
		require.ErrorIs(t, err, lua.ErrAbsent)
		coupons := newBundle(t, rdb, nil)
		_, err = coupons.s.Push(t.Context(), coupons.c.ID, &lua.Push{Epoch: 1, Upto: 1})
		require.ErrorIs(t, err, lua.ErrDamaged)
	})
}

// A list that is missing, short, long or of another type is never read
// as sold out, nor given out.
func TestPackets_ADamagedListIsNotSoldOut(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for name, harm := range map[string]func(waves, list string) error{
			"list gone":           func(_, list string) error { return rdb.Del(t.Context(), list).Err() },
			"waves gone":          func(waves, _ string) error { return rdb.Del(t.Context(), waves).Err() },
			"both gone":           func(waves, list string) error { return rdb.Del(t.Context(), waves, list).Err() },
			"one packet lost":     func(_, list string) error { return rdb.LPop(t.Context(), list).Err() },
			"no packet":           func(_, list string) error { return rdb.LSet(t.Context(), list, 0, "five").Err() },
			"amount of 16 digits": func(_, list string) error { return rdb.LSet(t.Context(), list, 0, "1234567890123456:a").Err() },
			"an id with a quote":  func(_, list string) error { return rdb.LSet(t.Context(), list, 0, `1:a"`).Err() },
		} {
			p := newPackets(t, rdb)
			p.push(0, "a", 1, "b", 2)
			p.push(time.Hour, "c", 3)
			list := rdb.ZRange(t.Context(), p.keys.Waves, 0, -1).Val()[0]
			require.NoError(t, harm(p.keys.Waves, list))
			before := dump(t, rdb)
			require.Equal(t, []string{"damaged", "damaged", "damaged"}, p.take("u", "v", "w"), name)
			require.Equal(t, before, dump(t, rdb), name)
		}
	})
}

func TestPackets_AreNotEvictedBeforeTheirTime(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPackets(t, rdb)
		p.push(0, "a", 1)
		p.push(time.Hour, "b", 2)
		evict := func() bool { return evict(t, p.s, p.c, 10*time.Minute) }
		p.at(30 * time.Minute)
		require.False(t, evict(), "a wave is to come")
		p.at(65 * time.Minute)
		require.False(t, evict(), "it came of late")
		p.at(71 * time.Minute)
		require.True(t, evict())
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			require.Contains(t, []string{p.keys.Stream, p.keys.Signals}, key)
		}
	})
}

type packetModel struct {
	waiting []waiting // in the order in which they are given out
	holds   map[string]string
}

type waiting struct {
	at    time.Duration
	entry string
}

func (m *packetModel) push(at time.Duration, entry string) {
	i, _ := slices.BinarySearchFunc(m.waiting, at, func(w waiting, at time.Duration) int {
		if w.at <= at {
			return -1
		}
		return 1
	})
	m.waiting = slices.Insert(m.waiting, i, waiting{at, entry})
}

func (m *packetModel) take(user string, now time.Duration) string {
	switch {
	case len(m.waiting) == 0:
		return "sold_out"
	case m.waiting[0].at > now:
		return "not_released"
	case m.holds[user] != "":
		return "user_limit"
	}
	m.holds[user], m.waiting = m.waiting[0].entry, m.waiting[1:]
	return m.holds[user]
}

// differs runs a random history. It returns
// where the scripts and the model differ, or "".
func (p *packets) differs(rng *rand.Rand, steps int) string {
	p.t.Helper()
	m := &packetModel{holds: map[string]string{}}
	now := time.Duration(0)
	for step := range steps {
		switch rng.IntN(4) {
		case 0:
			at := time.Duration(rng.IntN(4)) * time.Duration(rng.IntN(50)) * time.Millisecond
			var pairs []any
			for i := range rng.IntN(6) {
				id, amount := fmt.Sprintf("p%d-%d", step, i), 1+rng.IntN(100)
				pairs = append(pairs, id, amount)
				m.push(at, fmt.Sprint(id, ":", amount))
			}
			p.push(at, pairs...)
		case 1:
			now += time.Duration(rng.IntN(8)) * time.Millisecond
			p.at(now)
		default:
			users := make([]string, 1+rng.IntN(9))
			wanted := make([]string, len(users))
			for i := range users {
				users[i] = fmt.Sprint("u", rng.IntN(200))
				wanted[i] = m.take(users[i], now)
			}
			if got := p.take(users...); !slices.Equal(wanted, got) {
				return fmt.Sprintf("step %d: %v, want %v", step, got, wanted)
			}
		}
	}
	p.requireBooks()
	return ""
}

func TestPackets_DoWhatTheModelDoes(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		seeds := uint64(8)
		if !isReal(t) { // which is slow
			seeds = 2
		}
		for seed := range seeds {
			p := newPackets(t, rdb)
			require.Empty(t, p.differs(rand.New(rand.NewPCG(seed, 1)), 120), "seed %d", seed)
			p.at(time.Hour)
			for !slices.Contains(p.take(fmt.Sprint("late", p.state().Seq)), "sold_out") { //nolint:revive // until all are taken
			}
			require.Equal(t, []int64{p.pushed, p.pushed, p.pushed}, []int64{p.state().Total, p.state().Taken, p.state().Pushed})
			require.Zero(t, rdb.Exists(t.Context(), p.keys.Waves).Val(), "lists that are empty are forgotten")
		}
	})
}

func TestPackets_TheModelSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	rdb := connect(t, "redis://"+miniredis.RunT(t).Addr())
	for text, instead := range map[string]string{
		"'ZRANGEBYSCORE', waves_key, '-inf', now_ms":              "'ZRANGEBYSCORE', waves_key, '-inf', now_ms + 5",
		"if waves_key and not packet then answer = -11 break end": "if waves_key and not packet then answer = -7 break end",
		"redis.call('LTRIM', list, last - removed, -1)":           "redis.call('LTRIM', list, last - removed - 1, -1)",
		"removed = last": "removed = 0", // of the second list of a call
	} {
		found := false
		for seed := uint64(0); seed < 8 && !found; seed++ {
			p := newPackets(t, rdb)
			require.NoError(t, p.s.Mutate(text, instead))
			found = p.differs(rand.New(rand.NewPCG(seed, 1)), 120) != ""
		}
		require.True(t, found, text)
	}
}
