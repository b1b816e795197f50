package lua_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

func (b *bundle) released(req lua.ClaimRequest, seq int64, at time.Time) lua.Release {
	return releaseOf(req, models.Claim{CampaignID: b.c.ID, Seq: seq, ClaimedAt: models.NewTime(at)})
}

func releaseOf(req lua.ClaimRequest, claim models.Claim) lua.Release {
	event := event.Event{
		V: 1, Type: event.ClaimReleased, ID: uuid.Must(uuid.NewV7()).String(), CampaignID: claim.CampaignID, UserID: req.UserID,
		Quantity: req.Quantity, Seq: claim.Seq, ClaimID: req.ID.String(), At: claim.ClaimedAt, ClaimedAt: &claim.ClaimedAt,
	}
	payload, _ := json.Marshal(&event)
	return lua.Release{Claim: pastOf(req, claim.Seq, claim.ClaimedAt.Time), EventID: event.ID, Event: payload}
}

func pastOf(req lua.ClaimRequest, seq int64, at time.Time) lua.ClaimRecord {
	p := lua.ClaimRecord{ID: []byte(req.ID.String()), UserID: []byte(req.UserID), Seq: seq, Quantity: req.Quantity, At: at.Truncate(time.Millisecond), Subjects: req.Subjects}
	if req.Key != "" {
		digest := sha256.Sum256([]byte(req.UserID + "\x00" + req.Key))
		p.KeyDigest = base64.RawURLEncoding.AppendEncode(nil, digest[:16])
	}
	return p
}

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
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "taken", 0).Err())
		b.unchanged("nothing is taken", func() { require.Equal(t, []lua.Released{lua.ReleasedDamaged}, b.giveBack(good)) })
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "taken", 1).Err())
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
