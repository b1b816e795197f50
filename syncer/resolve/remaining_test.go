package resolve_test

import (
	"fmt"
	"testing"

	"dibs/internal/migrations"
	"dibs/internal/testkit/syncertest"
	"dibs/models"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"
)

// Claims, flushes, releases, and changes that reach Redis or not, in
// any order. At every step remaining in campaigns is max(max(total,
// redis_total) - claimed, 0) by a model, and not below Redis' own once
// its entries are applied. When Redis has all changes, the two agree.
func TestRemaining_FollowsTheModelAndIsNeverBelowRedis(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, _ := clocked(t, db)
		play := func(rt *rapid.T) { playRemaining(rt, h) }
		if db.Name() == migrations.SQLite { // which is slow
			syncertest.Few(t, 10, play)
			return
		}
		rapid.Check(t, play)
	})
}

func playRemaining(rt *rapid.T, h *syncertest.Stack) {
	total := rapid.Int64Range(0, 12).Draw(rt, "total")
	id := h.Create(total, nil)
	unheard := h.Without("adjust")
	var open []string
	hasHeard := true // Redis has the newest definition
	// total that Redis may sell by, until the
	// entry of the newest definition is flushed
	highest := int64(0)
	claimed := int64(0)
	check := func(step string) {
		state, err := h.Scripts.State(h.T.Context(), id)
		require.NoError(rt, err)
		var inSQL int64
		require.NoError(rt, h.DB.Raw("SELECT remaining FROM campaigns WHERE id = ?", id).Scan(&inSQL).Error)
		require.Equal(rt, max(max(total, highest)-claimed, 0), inSQL, step)
		require.GreaterOrEqual(rt, inSQL, state.Remaining(), step)
		if hasHeard && highest == 0 && state.Seq == h.Campaign(id).SyncedSeq {
			require.Equal(rt, state.Remaining(), inSQL, step)
		}
	}
	flush := func() {
		h.Sync()
		claimed = h.Campaign(id).Claimed
		if hasHeard {
			highest = 0
		}
	}
	for i := range rapid.IntRange(4, 12).Draw(rt, "steps") {
		step := rapid.SampledFrom([]string{"claim", "flush", "release", "change", "change unheard", "apply"}).Draw(rt, "step")
		switch step {
		case "claim":
			for _, r := range h.Claim(id, syncertest.Asks(fmt.Sprint("u", i), rapid.IntRange(1, 3).Draw(rt, "claims"))...) {
				if r.Outcome == models.OutcomeClaimed {
					open = append(open, r.Claim.ID)
				}
			}
		case "flush":
			flush()
		case "release":
			flush()
			if len(open) > 0 {
				_, err := resolver(h).Release(h.T.Context(), open[0], "")
				require.NoError(rt, err)
				open = open[1:]
				flush()
			}
		case "change", "change unheard":
			was := total
			total = rapid.Int64Range(0, 15).Draw(rt, "new total")
			scripts := h.Scripts
			if step == "change unheard" {
				scripts = unheard
			}
			_, err := syncertest.NewCampaigns(h.T, h.DB, scripts).Change(h.T.Context(), id, models.Change{Total: &total})
			if total != was {
				highest = max(highest, was)
				hasHeard = false
			}
			if step == "change" {
				require.NoError(rt, err)
				hasHeard = true
			}
		case "apply":
			require.NoError(rt, h.Maintainer().Attend(h.T.Context()))
			hasHeard = true
		}
		check(fmt.Sprint(i, " ", step))
	}
	require.NoError(rt, h.Maintainer().Attend(h.T.Context()))
	hasHeard = true
	flush()
	check("all is heard")
}
