package lua_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// released is the release of a claim that was made by req.
func (b *bundle) released(req lua.ClaimRequest, seq int64, at time.Time) lua.Release {
	event := models.Event{
		V: 1, Type: models.EventClaimReleased, ID: uuid.Must(uuid.NewV7()).String(), CampaignID: b.c.ID, UserID: req.UserID,
		Quantity: req.Quantity, Seq: seq, ClaimID: req.ID.String(),
	}
	return lua.Release{
		Claim: pastOf(req, seq, at), EventID: event.ID,
		Event: []byte(fmt.Sprintf(`{"v":1,"type":"claim.released","id":%q,"campaign_id":%q,"user_id":%q,"quantity":%d,"seq":%d,"at":%q,"claim_id":%q,"claimed_at":%q}`,
			event.ID, event.CampaignID, event.UserID, event.Quantity, event.Seq, "2026-03-05T12:00:00.000Z", event.ClaimID, "2026-03-05T12:00:00.000Z")),
	}
}

// pastOf is a claim as MySQL holds it.
func pastOf(req lua.ClaimRequest, seq int64, at time.Time) lua.ClaimRecord {
	p := lua.ClaimRecord{ID: []byte(req.ID.String()), UserID: []byte(req.UserID), Seq: seq, Quantity: req.Quantity, At: at.Truncate(time.Millisecond), Subjects: req.Subjects}
	if req.Key != "" {
		digest := sha256.Sum256([]byte(req.UserID + "\x00" + req.Key))
		p.KeyDigest = base64.RawURLEncoding.AppendEncode(nil, digest[:16])
	}
	return p
}

// taken claims and returns the release of it.
func (b *bundle) taken(req lua.ClaimRequest) lua.Release {
	b.t.Helper()
	reply := b.claim(req)[0]
	require.Equal(b.t, models.OutcomeClaimed, reply.Outcome)
	return b.released(req, reply.Claim.Seq, reply.Claim.ClaimedAt.Time)
}

func (b *bundle) giveBack(releases ...lua.Release) []lua.Released {
	b.t.Helper()
	done, err := b.s.Release(b.t.Context(), b.c, releases)
	require.NoError(b.t, err)
	return done
}

// told are the claims that claim.released told of, in order, by the ids of the events.
func (b *bundle) told() []string {
	b.t.Helper()
	entries, err := b.rdb.XRange(b.t.Context(), b.keys.Stream, "-", "+").Result()
	require.NoError(b.t, err)
	var ids []string
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		require.NoError(b.t, err)
		if e.CampaignID == b.c.ID && e.Type == models.EventClaimReleased {
			require.Equal(b.t, e.ID, entry.Values["_watermill_message_uuid"])
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func TestReleaseGivesBackOnce(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = 4, 3, 3 })
		keyed, plain := want("u", 2, "k"), want("u", 1, "")
		first := b.claim(keyed)[0]
		one, two := b.released(keyed, 1, noon), b.taken(plain)
		require.Equal(t, []models.Outcome{models.OutcomeUserLimit, models.OutcomeSoldOut}, b.outcomes(want("u", 1, ""), want("v", 2, "")))
		require.Equal(t, []lua.Released{lua.ReleasedNow}, b.giveBack(one))
		require.Equal(t, int64(2), b.state().Seq)
		for range 3 { // again, alone and beside others
			require.Equal(t, []lua.Released{lua.ReleasedBefore}, b.giveBack(one))
			require.Equal(t, []lua.Released{lua.ReleasedBefore, lua.ReleasedBefore}, b.giveBack(one, one))
		}
		require.Equal(t, []string{one.EventID}, b.told())
		require.Equal(t, int64(1), b.state().Taken)
		require.Equal(t, int64(1), b.state().Released)

		again := b.claim(keyed)[0]
		require.Equal(t, models.OutcomeReplayed, again.Outcome)
		require.Equal(t, first.Claim, again.Claim, "the first answer, whatever became of the claim")
		require.Equal(t, []models.Outcome{models.OutcomeIdempotencyMismatch}, b.outcomes(want("u", 1, "k")))

		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit}, b.outcomes(want("u", 2, ""), want("u", 1, "")))
		require.Equal(t, []lua.Released{lua.ReleasedNow, lua.ReleasedBefore, lua.ReleasedBefore}, b.giveBack(two, two, one))
		require.Equal(t, []models.Outcome{models.OutcomeReplayed}, b.outcomes(plain), "a claim without a key, sent again")
		require.Equal(t, int64(2), b.state().Taken)
		require.Equal(t, int64(2), b.state().Released)
		require.Equal(t, []string{one.EventID, two.EventID}, b.told())
	})
}

func TestReleaseOfSeveralOfOneUserInOneCall(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUser = 6 })
		var all []lua.Release
		for q := range int64(3) {
			all = append(all, b.taken(want("u", q+1, "")))
		}
		require.Equal(t, []lua.Released{0, 0, 0, 2}, b.giveBack(append(all, all[0])...))
		require.Zero(t, b.state().Taken)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit}, b.outcomes(want("u", 6, ""), want("u", 1, "")))
	})
}

func TestReleaseGivesTheDayBackOnItsDayOnly(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			starts := parse(t, row.starts)
			b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUserPerDay, c.TimeZone = 1, row.zone })
			b.setClock(starts.Add(-time.Millisecond))
			before := b.taken(want("u", 1, ""))
			require.Equal(t, []models.Outcome{models.OutcomeUserDayLimit}, b.outcomes(want("u", 1, "")), row.name)
			b.giveBack(before)
			before = b.taken(want("u", 1, ""))
			b.setClock(starts)
			after := b.taken(want("u", 1, ""))
			b.giveBack(before)
			require.Equal(t, []models.Outcome{models.OutcomeUserDayLimit}, b.outcomes(want("u", 1, "")), "%s: it was of the day before", row.name)
			b.giveBack(after)
			require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserDayLimit}, b.outcomes(want("u", 1, ""), want("u", 1, "")), row.name)
		}
	})
}

func TestReleaseRefusesWhatItDoesNotKnow(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Epoch = 4 })
		good := b.taken(want("u", 1, "k"))
		told, err := b.s.Release(t.Context(), &models.Campaign{ID: "nobody", TimeZone: "UTC", Epoch: 4}, []lua.Release{good})
		require.NoError(t, err)
		require.Equal(t, []lua.Released{lua.ReleasedAway}, told)
		for name, change := range map[string]func(r *lua.Release){
			"another claim":    func(r *lua.Release) { r.Claim.ID = []byte(uuid.NewString()) },
			"another user":     func(r *lua.Release) { r.Claim.UserID = []byte("v") },
			"another quantity": func(r *lua.Release) { r.Claim.Quantity = 2 },
			"another place":    func(r *lua.Release) { r.Claim.Seq = 2 },
			"another time":     func(r *lua.Release) { r.Claim.At = r.Claim.At.Add(time.Millisecond) },
			"another key":      func(r *lua.Release) { r.Claim.KeyDigest = []byte(strings.Repeat("A", 22)) },
			"no key":           func(r *lua.Release) { r.Claim.KeyDigest = nil },
		} {
			bad := good
			change(&bad)
			b.unchanged(name, func() { require.Equal(t, []lua.Released{lua.ReleasedDamaged}, b.giveBack(bad), name) })
		}
		for _, quantity := range []int64{0, -1, models.QuantityMax + 1} {
			bad := good
			bad.Claim.Quantity = quantity
			_, err := b.s.Release(t.Context(), b.c, []lua.Release{bad})
			require.ErrorIs(t, err, lua.ErrUnavailable)
		}
		for _, record := range []string{"", "0:0;20517:1", "0:1;20517:0", "x", "0:1", "0:1;20517:1"} {
			require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", record).Err())
			if record == "0:1;20517:1" {
				break
			}
			b.unchanged(record, func() { require.Equal(t, []lua.Released{lua.ReleasedDamaged}, b.giveBack(good), record) })
		}
		_, err = b.fence("loader", lua.FenceAny)
		require.NoError(t, err)
		b.unchanged("someone loads it", func() {
			_, err := b.s.Release(t.Context(), b.c, []lua.Release{good})
			require.ErrorIs(t, err, lua.ErrOther)
		})
		require.NoError(t, rdb.HDel(t.Context(), b.keys.State, "token").Err())
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "status", "closed").Err())
		require.Equal(t, []lua.Released{lua.ReleasedNow}, b.giveBack(good), "a closed campaign's claims end, too")
	})
}

// A load and a release in place must come to the same user's records, whichever claims were released, over midnights.
func TestReleasesAndLoadsCountTheSame(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.TimeZone = 1000, "America/New_York" })
		var reqs []lua.ClaimRequest
		var past []lua.ClaimRecord
		for i := range 60 {
			b.setClock(noon.Add(time.Duration(i) * 7 * time.Hour))
			req := want(fmt.Sprintf("u%d", random.IntN(4)), 1+random.Int64N(3), strings.Repeat("k", random.IntN(2)*(i+1)))
			reply := b.claim(req)[0]
			p := pastOf(req, reply.Claim.Seq, reply.Claim.ClaimedAt.Time)
			p.Live = true
			if random.IntN(2) == 0 {
				p.Live = false
				b.giveBack(b.released(req, reply.Claim.Seq, reply.Claim.ClaimedAt.Time))
			}
			reqs, past = append(reqs, req), append(past, p)
		}
		for i := range past {
			if past[i].Live && random.IntN(3) == 0 {
				past[i].Live = false
				b.giveBack(b.released(reqs[i], past[i].Seq, past[i].At))
			}
		}
		users := contents(t.Context(), t, rdb, b.keys.Users)
		state := b.state()
		b.c.Epoch = 2
		reload(t, b.s, b.c, func(st *lua.Staging) {
			for i := range past {
				require.NoError(t, st.Add(t.Context(), &past[i]))
			}
			st.Seq = state.Seq
			st.Sold = state.Sold
		})
		require.NoError(t, rdb.HDel(t.Context(), b.keys.Users, "").Err()) // stands for archived claims
		require.Equal(t, users, contents(t.Context(), t, rdb, b.keys.Users))
		require.Equal(t, []int64{state.Taken, state.Released, state.Seq}, []int64{b.state().Taken, b.state().Released, b.state().Seq})
	})
}

func TestReleaseChangesNothingOnAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	b := newBundle(t, connect(t, server.URL()), nil)
	one, two := b.taken(want("u", 1, "k")), b.taken(want("u", 1, ""))
	set("maxmemory", "1")(t, b.rdb)
	before := server.Dump(t.Context())
	for _, releases := range [][]lua.Release{{one}, {one, two}} {
		_, err := b.s.Release(t.Context(), b.c, releases)
		require.ErrorIs(t, err, lua.ErrUnavailable)
		require.ErrorContains(t, err, "OOM")
	}
	require.Equal(t, before, server.Dump(t.Context()))
	set("maxmemory", "0")(t, b.rdb)
	require.Equal(t, []lua.Released{0, 0}, b.giveBack(one, two))
	require.Zero(t, b.state().Taken)
}
