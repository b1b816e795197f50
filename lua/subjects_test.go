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

// everyLimit is a limit by user and by device for each window that has no field of its own, which no game reaches.
func everyLimit() (all models.Limits) {
	for _, per := range models.Pers {
		all = append(all, models.Limit{By: "device", Per: per, Max: 1000})
		if per != models.PerAll && per != models.PerDay {
			all = append(all, models.Limit{By: models.ByUser, Per: per, Max: 1000})
		}
	}
	return all[:models.LimitsMax]
}

// differs is the first record in Redis that is not what the claims add up to.
func (h *history) differs() string {
	h.b.t.Helper()
	held, err := h.b.rdb.HGetAll(h.b.t.Context(), h.b.keys.Users).Result()
	require.NoError(h.b.t, err)
	records := h.records()
	for field, text := range held {
		if difference := records.Compare(field, text); difference != "" {
			return difference
		}
	}
	for field := range records.Units() {
		if _, found := held[field]; !found {
			return field + " has no record"
		}
	}
	return ""
}

// playLimits claims, releases and changes limits at random, and returns the first difference.
func playLimits(t *testing.T, rdb redis.UniversalClient, seed uint64, zone, starts string, mutate func(s *lua.Scripts) error) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	b := newBundle(t, rdb, func(c *models.Campaign) {
		c.Total = 1000
		c.TimeZone = zone
		c.Limits = everyLimit()
	})
	if mutate != nil {
		require.NoError(t, mutate(b.s))
	}
	h := &history{b: b}
	now := parse(t, starts).Add(-30 * time.Hour)
	var live []int
	for range 80 {
		now = now.Add(time.Duration(r.IntN(60)) * time.Minute)
		if r.IntN(20) == 0 {
			now = now.Add(time.Duration(r.IntN(20*24)) * time.Hour)
		}
		b.setClock(now)
		switch r.IntN(8) {
		case 0:
			limits := slices.DeleteFunc(everyLimit(), func(models.Limit) bool { return r.IntN(3) == 0 })
			limits.ContinueFrom(b.c.Limits, b.c.Version+1, 1)
			st := b.adjust(func(c *models.Campaign) { c.Limits = limits })
			b.c.Limits = st.Limits()
		case 1, 2:
			if len(live) > 0 {
				at := r.IntN(len(live))
				h.release(live[at])
				live = slices.Delete(live, at, at+1)
			}
		default:
			live = append(live, len(h.claims))
			var subjects models.Subjects
			if slices.ContainsFunc(b.c.Limits, func(l models.Limit) bool { return l.By == "device" }) || r.IntN(2) == 0 {
				subjects = models.Subjects{"device": fmt.Sprint("d ", r.IntN(3)), "card": "x"}
			}
			h.claimWith(fmt.Sprint("u", r.IntN(3)), 1+r.Int64N(3), subjects)
		}
		if difference := h.differs(); difference != "" {
			return difference
		}
	}
	return ""
}

// What Redis counts for limits of any window and subject is what the claims add up to, through releases, changes of the limits and days
// of 23 and 25 hours.
func TestRecordsOfLimitsAreThoseOfTheClaims(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for i, row := range midnights {
			require.Empty(t, playLimits(t, rdb, uint64(i), row.zone, row.starts, nil), row.name)
		}
	})
}

// Controls: release.lua with one mistake each.
func TestRecordsOfLimitsCatchMutantsOfRelease(t *testing.T) {
	t.Parallel()
	for name, mutant := range map[string][2]string{
		"a quota is returned twice":       {"counts[tag] = counts[tag] - quantity", "counts[tag] = math.max(0, counts[tag] - 2 * quantity)"},
		"a quota is not returned":         {"counts[tag] = counts[tag] - quantity", ""},
		"a later window gets the quota":   {"and windows[tag] == (windows_of_claim[string.sub(tag, 1, 1)] or 0) then", "then"},
		"a claim that was not counted is": {"at_ms >= limit.from and ", ""},
		"subjects get nothing":            {"for field, left in pairs(after) do", "for field, left in pairs({[user] = after[user]}) do"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := connect(t, "redis://"+miniredis.RunT(t).Addr())
			for seed := range uint64(40) {
				noticed := playLimits(t, rdb, seed, "Europe/Berlin", "2026-03-29T00:00:00+01:00", func(s *lua.Scripts) error {
					return s.MutateRelease(mutant[0], mutant[1])
				})
				if noticed != "" {
					t.Log(noticed)
					return
				}
			}
			require.Fail(t, "nothing noticed")
		})
	}
}
