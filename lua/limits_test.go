package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func TestClaimAndReleaseShareTheTextOfUsersRecords(t *testing.T) {
	t.Parallel()
	shared, err := os.ReadFile("shared/users_records.lua")
	require.NoError(t, err)
	for _, function := range []string{"read_limits(", "read_record(", "write_record("} {
		require.Contains(t, string(shared), "local function "+function)
	}
	for name, source := range lua.Sources() {
		outside := source
		if name == "claim" || name == "release" {
			before, after, found := strings.Cut(source, string(shared))
			require.True(t, found, "%s has the text", name)
			outside = before + after
		}
		_, body := header(outside)
		require.NotContains(t, body, `.(%d+):(%d+)'`, "%s reads users' records by itself", name)
		require.NotContains(t, source, "-- include", name)
	}
}

// history is what a campaign's claims were, for UserRecords.
type history struct {
	b      *bundle
	claims []lua.ClaimRecord
	reqs   []lua.ClaimRequest
}

// claim takes a claim at the bundle's time and remembers it.
func (h *history) claim(user string, quantity int64) {
	h.b.t.Helper()
	h.claimWith(user, quantity, nil)
}

func (h *history) claimWith(user string, quantity int64, subjects models.Subjects) {
	h.b.t.Helper()
	req := want(user, quantity, "")
	req.Subjects = subjects
	reply := h.b.claim(req)[0]
	require.Equal(h.b.t, models.OutcomeClaimed, reply.Outcome)
	p := pastOf(req, reply.Claim.Seq, reply.Claim.ClaimedAt.Time)
	p.Live = true
	h.claims, h.reqs = append(h.claims, p), append(h.reqs, req)
}

// release releases a claim that was remembered.
func (h *history) release(i int) {
	h.b.t.Helper()
	p := &h.claims[i]
	p.Live = false
	require.Equal(h.b.t, []lua.Released{lua.ReleasedNow}, h.b.giveBack(h.b.released(h.reqs[i], p.Seq, p.At)))
}

// records adds up the claims.
func (h *history) records() *lua.UserRecords {
	h.b.t.Helper()
	records, err := lua.NewUserRecords(h.b.c, int64(len(h.claims)))
	require.NoError(h.b.t, err)
	for i := range h.claims {
		records.Add(&h.claims[i])
	}
	return records
}

// requireSame compares Redis with what the claims add up to, byte for byte.
func (h *history) requireSame(msg string) {
	h.b.t.Helper()
	held, err := h.b.rdb.HGetAll(h.b.t.Context(), h.b.keys.Users).Result()
	require.NoError(h.b.t, err)
	records := h.records()
	require.Equal(h.b.t, records.Texts(), held, msg)
	for user, record := range held {
		require.Empty(h.b.t, records.Compare(user, record), msg)
	}
}

// What the scripts write and what MySQL's claims add up to is the same text, over days of 23 and 25 hours and days that are left out.
func TestUserRecordsAreThoseOfTheScripts(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			r := rand.New(rand.NewPCG(uint64(len(row.name)), 1))
			b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.TimeZone = 1000, row.zone })
			h := &history{b: b}
			now := parse(t, row.starts).Add(-30 * time.Hour)
			live := []int{}
			for range 60 {
				now = now.Add(time.Duration(r.IntN(120)) * time.Minute)
				b.setClock(now)
				live = append(live, len(h.claims))
				h.claim(fmt.Sprint("u", r.IntN(4)), 1+r.Int64N(3))
				if r.IntN(3) == 0 {
					at := r.IntN(len(live))
					h.release(live[at])
					live = append(live[:at], live[at+1:]...)
				}
			}
			h.requireSame(row.name)
		}
	})
}

// A user's buckets never go back, though Redis' clock does.
func TestUserRecordsAreThoseOfTheScriptsWhenTheClockStepsBack(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		h := &history{b: b}
		for _, at := range []time.Time{noon, noon.Add(24 * time.Hour), noon, noon.Add(20 * time.Hour)} {
			b.setClock(at)
			h.claim("u", 1)
		}
		h.requireSame("")
	})
}

func TestUserRecordsCompare(t *testing.T) {
	t.Parallel()
	c := &models.Campaign{ID: "c", TimeZone: "UTC"}
	records, err := lua.NewUserRecords(c, 1)
	require.NoError(t, err)
	at := time.Date(1970, 1, 11, 12, 0, 0, 0, time.UTC)
	records.Add(&lua.ClaimRecord{UserID: []byte("u"), Quantity: 3, At: at, Live: true})
	records.Add(&lua.ClaimRecord{UserID: []byte("none"), Quantity: 3, At: at})
	for _, row := range []struct{ user, record, says string }{
		{"u", "0:3;10:3", ""},
		{"u", "0:3;10:3;h7.4:9", ""}, // of a limit that was removed
		{"u", "0:3", `user u has a record in redis that reads "0:3"`},
		{"u", "0:3;10:3;4:9", `user u has a record in redis that reads "0:3;10:3;4:9"`},
		{"u", "0:2;10:3", "user u holds 2 units in redis, the rows are of 3"},
		{"u", "0:3;10:2", "user u holds 2 units of day 10 in redis, the rows are of 3 on day 10"},
		{"u", "0:3;11:3", "user u holds 3 units of day 11 in redis, the rows are of 3 on day 10"},
		{"u", "0:3;11:0", "user u holds 0 units of day 11 in redis, the rows are of 3 on day 10"},
		{"none", "0:0;10:0", ""},
		{"none", "0:0;12:0", ""},
		{"none", "0:0;10:1", "user none holds 1 units of day 10 in redis, the rows are of 0 on day 10"},
		{"nobody", "0:0;10:0", ""},
		{"nobody", "0:1;10:1", "user nobody holds 1 units in redis, the rows are of 0"},
		{"u", "", `user u has a record in redis that reads ""`},
		{"u", "0:3;", `user u has a record in redis that reads "0:3;"`},
		{"u", "0:-3;10:3", `user u has a record in redis that reads "0:-3;10:3"`},
		{"u", "0:3;10:+3", `user u has a record in redis that reads "0:3;10:+3"`},
		{"u", "0:3;10:0000000000000003", `user u has a record in redis that reads "0:3;10:0000000000000003"`},
	} {
		require.Equal(t, row.says, records.Compare(row.user, row.record), row.record)
	}
	require.Equal(t, map[string]int64{"u": 3, "none": 0}, maps.Collect(records.Units()))
}
