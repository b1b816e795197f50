package bench_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// benchMemory fills a campaign and reads the size of each key from Redis.
func benchMemory(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b)}
	s.rounds = 1 // the figures are always the same
	claims := amount(100_000)
	subject := brokerOn(b, r.server)
	subject.subjects = []string{"device"}
	const uuids = "0190a6f2-7c1e-7b5a-9d3e-4f6a8b"
	for _, one := range []struct {
		name, prefix string
		keyed        bool
		*broker
	}{
		{"user ids of 11 characters", "user-", false, r},
		{"user ids of 11 characters, idempotency keys", "user-", true, r},
		{"user ids of 36 characters, idempotency keys", uuids, true, r},
		{"user ids of 36 characters, devices of 43, idempotency keys", uuids, true, subject},
	} {
		r := one.broker
		m := r.campaign(b, plenty)
		r.fill(b, m, one.prefix, claims, one.keyed)
		k := lua.KeysOf(m.ID, m.Partition)
		users, keys := r.sizeOf(b, k.Users), r.sizeOf(b, k.Keys)
		per := func(bytes int64) float64 { return float64(bytes) / float64(claims) }
		s.add(one.name+": users", "bytes/claim", per(users))
		s.add(one.name+": keys", "bytes/claim", per(keys))
		s.add(one.name+": both", "bytes/claim", per(users+keys))
		s.add(one.name+": stream entry, until trimmed", "bytes/claim", per(r.sizeOf(b, k.Stream)))
		r.forget(b, m)
	}
	s.note("MEMORY USAGE … SAMPLES 0 of whole keys of 100,000 claims. Hash tables double: at other sizes each of the two may take 2 bytes less or 6 more.")
	s.goal(b, "user ids of 36 characters, idempotency keys: both", atMost, 180)
}

// fill makes claims of users numbered with six digits after the prefix.
func (r *broker) fill(b *testing.B, m lua.Meta, prefix string, claims int, keyed bool) {
	b.Helper()
	reqs := make([]lua.ClaimRequest, lua.ClaimsMax)
	for done := 0; done < claims; done += len(reqs) {
		reqs = reqs[:min(lua.ClaimsMax, claims-done)]
		replies, _, err := r.scripts.Claim(b.Context(), m, r.carry(requests(reqs, prefix, int64(100_000+done), keyed)))
		require.NoError(b, err)
		require.NoError(b, allTaken(replies))
	}
}

func (r *broker) sizeOf(b *testing.B, key string) int64 {
	b.Helper()
	size, err := r.rdb.MemoryUsage(longAfter(b), key, 0).Result()
	require.NotErrorIs(b, err, redis.Nil)
	require.NoError(b, err)
	return size
}

// carry adds to claims the subjects limited by the broker's
// campaigns, each its own.
func (r *broker) carry(reqs []lua.ClaimRequest) []lua.ClaimRequest {
	for i := range reqs {
		for _, name := range r.subjects {
			reqs[i].Subjects = models.Subjects{name: name + "-" + reqs[i].UserID}
		}
	}
	return reqs
}

func (r *broker) limits() (all models.Limits) {
	for _, name := range r.subjects {
		all = append(all, models.Limit{By: name, Per: models.PerDay, Max: plenty})
	}
	return all
}
