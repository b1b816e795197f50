package lua_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// durabilities are those that wait.
var durabilities = map[string]lua.Durability{"fsync": {Fsync: true}, "replica:2": {Replicas: 2}}

// durable has the bundle's calls wait.
func (b *bundle) durable(d lua.Durability) *bundle {
	b.t.Helper()
	s, err := lua.New(b.rdb, lua.Options{
		Clock: func() time.Time { return time.UnixMilli(b.ourMs.Load()) }, ServerClock: b.redisMs.Load, Durability: d,
	})
	require.NoError(b.t, err)
	b.s = s
	return b
}

// witness is a stand-in for a server that waits: it says at once what it is told to say.
type witness struct {
	says  atomic.Pointer[string] // "2", "2 0", an error or nonsense
	asked atomic.Int64
	after atomic.Pointer[string] // what it says from the second question on; nil is the same
}

func (w *witness) say(words string) { w.after.Store(nil); w.asked.Store(0); w.says.Store(&words) }

func (w *witness) then(words string) { w.after.Store(&words) }

func (w *witness) answer(c *server.Peer, command string, args ...string) (done bool) {
	if command != "WAIT" && command != "WAITAOF" {
		return false
	}
	if timeout, err := strconv.Atoi(args[len(args)-1]); err != nil || timeout < 1 || timeout > 2000 {
		c.WriteError("ERR a wait of " + args[len(args)-1])
		return true
	}
	says := *w.says.Load()
	if after := w.after.Load(); after != nil && w.asked.Load() > 0 {
		says = *after
	}
	w.asked.Add(1)
	n, err := strconv.Atoi(says)
	switch {
	case says == "nonsense":
		c.WriteBulk(says)
	case err != nil:
		c.WriteError(says)
	case command == "WAITAOF":
		c.WriteLen(2)
		c.WriteInt(min(n, 1)) // disks: ours
		c.WriteInt(0)
	default:
		c.WriteInt(n)
	}
	return true
}

// newWitness makes an embedded Redis that knows WAIT and WAITAOF.
func newWitness(t *testing.T) (*witness, redis.UniversalClient) {
	t.Helper()
	m, w := miniredis.RunT(t), &witness{}
	w.say("2")
	m.Server().SetPreHook(w.answer)
	return w, connect(t, "redis://"+m.Addr())
}

// eachDurability runs a test on the stand-in with either way of waiting.
func eachDurability(t *testing.T, test func(t *testing.T, w *witness, b *bundle)) {
	t.Helper()
	t.Parallel()
	for name, d := range durabilities {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, rdb := newWitness(t)
			test(t, w, newBundle(t, rdb, nil).durable(d))
		})
	}
}

func TestAYesIsToldOnlyWhenItIsKept(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		b.adjust(func(c *models.Campaign) { c.Total = 100 })
		require.Equal(t, []models.Outcome{models.OutcomeClaimed}, b.outcomes(want("early", 1, "")))
		for _, words := range []string{"0", "nonsense", "ERR broken", "NOPERM no", "READONLY no"} {
			reqs := []lua.ClaimRequest{want("user "+words, 1, "key "+words), want("other "+words, 1, "")}
			for range 2 { // a retry is no better than the first time
				w.say(words)
				replies, _, err := b.s.Claim(t.Context(), b.meta, reqs)
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown, words)
				require.NotErrorIs(t, err, lua.ErrUnavailable, words)
				require.Empty(t, replies)
			}
			w.say("2")
			require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeReplayed}, b.outcomes(reqs...))
		}
		b.requireBooks()
	})
}

func TestOneReplicaOfTwoIsTooFew(t *testing.T) {
	t.Parallel()
	w, rdb := newWitness(t)
	b := newBundle(t, rdb, nil).durable(lua.Durability{Replicas: 2})
	w.say("1")
	_, _, err := b.s.Claim(t.Context(), b.meta, wants("u", 1))
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "1 of 2 replicas")
}

func TestANoIsToldWhateverIsKept(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		b.adjust(func(c *models.Campaign) { c.Total = 1 })
		b.claim(want("first", 1, "key"))
		w.say("0")
		require.Equal(t, []models.Outcome{models.OutcomeSoldOut, models.OutcomeIdempotencyMismatch},
			b.outcomes(want("late", 1, ""), want("first", 2, "key")))
		require.NoError(t, b.rdb.Del(t.Context(), b.keys.State, b.keys.Users, b.keys.Keys).Err())
		require.Equal(t, []models.Outcome{models.OutcomeAbsent}, b.outcomes(want("later", 1, "")))
	})
}

func TestOneWaitServesEveryClaimOfACall(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		b.adjust(func(c *models.Campaign) { c.Total = 1000 })
		b.claim(wants("warm", 1)...)
		w.say("2")
		b.claim(wants("u", lua.ClaimsMax)...)
		require.Equal(t, int64(1), w.asked.Load())
	})
}

// The wait behind a script that wrote nothing speaks for nothing, so an old claim has a second one.
func TestAReplayHasAWaitOfItsOwn(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		again := want("u", 1, "key")
		b.claim(again)
		w.say("2")
		w.then("0")
		_, _, err := b.s.Claim(t.Context(), b.meta, []lua.ClaimRequest{again})
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		require.Equal(t, int64(2), w.asked.Load())

		w.say("2")
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(again))
		require.Equal(t, int64(2), w.asked.Load())
		life, err := b.rdb.PTTL(t.Context(), lua.KeptKey(b.meta.Partition)).Result()
		require.NoError(t, err)
		require.Positive(t, life, "what was written goes by itself")

		w.say("2")
		require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed}, b.outcomes(again, want("v", 1, "")))
		require.Equal(t, int64(1), w.asked.Load(), "a new claim comes after the old one: its wait speaks for both")
	})
}

func TestReadsDontWait(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		w.say("0")
		b.state()
		b.adjust(func(c *models.Campaign) { c.Total = 20 })
		require.Zero(t, w.asked.Load())
	})
}

func TestAForgottenScriptIsSentInFullAndWaitedFor(t *testing.T) {
	eachDurability(t, func(t *testing.T, w *witness, b *bundle) {
		require.NoError(t, b.s.Preload(t.Context()))
		for range 3 {
			require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
			require.Equal(t, []models.Outcome{models.OutcomeClaimed}, b.outcomes(wants("u", 1)...))
			require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
			w.say("2")
			w.then("0") // the first wait is behind a script that did not run
			_, _, err := b.s.Claim(t.Context(), b.meta, wants("v", 1))
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
			w.say("2")
		}
		require.Equal(t, int64(6), b.state().Seq)
		b.requireBooks()
	})
}

func TestAWaitIsNeverForEver(t *testing.T) {
	eachDurability(t, func(t *testing.T, _ *witness, b *bundle) { // the stand-in refuses waits of 0 and of over 2 s
		for _, within := range []time.Duration{200 * time.Millisecond, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, _, err := b.s.Claim(ctx, b.meta, wants(within.String(), 1))
			cancel()
			require.NoError(t, err)
		}
	})
}

func TestOtherDurabilitiesAreRefused(t *testing.T) {
	t.Parallel()
	for _, d := range []lua.Durability{{Fsync: true, Replicas: 1}, {Replicas: -1}, {Replicas: lua.ReplicasMax + 1}, {Vouched: true}} {
		_, err := lua.New(connect(t, "redis://127.0.0.1:1"), lua.Options{Durability: d})
		require.ErrorIs(t, err, lua.ErrDurability)
	}
}

// fsyncing are lines of redis.conf.
var fsyncing = []string{"appendonly yes", "appendfsync always", "aof-load-truncated no"}

// Before 7.2 there is no WAITAOF: the settings are read with each call, so that a change of them ends the promise at once.
func TestWithoutWaitAOFTheSettingsAreTheWitness(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t, fsyncing...).URL())
	b := newBundle(t, rdb, nil).durable(lua.Durability{Fsync: true})
	require.Equal(t, []models.Outcome{models.OutcomeClaimed}, b.outcomes(want("u", 1, "key"))) // found out with the first call
	require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(want("u", 1, "key")))
	if waitsForAOF(t, rdb) {
		t.Skip("this server knows WAITAOF")
	}
	for name, value := range map[string]string{"appendfsync": "everysec", "no-appendfsync-on-rewrite": "yes", "aof-load-truncated": "yes"} {
		before := rdb.ConfigGet(t.Context(), name).Val()[name]
		require.NoError(t, rdb.ConfigSet(t.Context(), name, value).Err())
		req := want("while "+name, 1, "key "+name)
		_, _, err := b.s.Claim(t.Context(), b.meta, []lua.ClaimRequest{req})
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		require.ErrorContains(t, err, name)
		require.NoError(t, rdb.ConfigSet(t.Context(), name, before).Err())
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(req))
	}
	b.requireBooks()
}

func waitsForAOF(t *testing.T, rdb redis.UniversalClient) bool {
	t.Helper()
	return rdb.Do(t.Context(), "waitaof", 0, 0, 1).Err() == nil
}
