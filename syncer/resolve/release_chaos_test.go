package resolve_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

// Releases whose tellers die, among evictions, restocks and rebuilds, by seed: whatever is left undone then is done, the books agree, and
// what was taken and not released is all that is missing from the stock.
func TestResolver_ReleasesAmongEvictionsRestocksAndRebuilds(t *testing.T) {
	t.Parallel()
	rounds := 60
	if testenv.Soak() {
		rounds = 1000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	h := syncertest.NewStack(t)
	total := int64(20)
	id := h.Create(total, nil)
	var live []string
	var released int64
	for round := range rounds {
		switch random.IntN(6) {
		case 0, 1: // claims, as many as there may be
			h.Sync()
			require.NoError(t, h.Load(id))
			for i, reply := range h.Claim(id, syncertest.Asks(fmt.Sprint("r", round), 1+random.IntN(5))...) {
				want := models.OutcomeClaimed
				if reply.Outcome != want {
					require.Equal(t, models.OutcomeSoldOut, reply.Outcome, "claim %d", i)
					continue
				}
				live = append(live, reply.Claim.ID)
			}
			require.LessOrEqual(t, int64(len(live)), total, "one too many")
			h.Sync()
		case 2, 3: // a release whose teller may die
			if len(live) == 0 {
				continue
			}
			i := random.IntN(len(live))
			step := append(resolveSteps, "none")[random.IntN(len(resolveSteps)+1)]
			died := killedAt(step, func(step func(string)) {
				_, err := resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), live[i], "")
				require.NoError(t, err)
			})
			if died && slices.Index(resolveSteps, step) < slices.Index(resolveSteps, "committed") {
				continue
			}
			live, released = slices.Delete(live, i, i+1), released+1
		case 4:
			h.Sync()
			switch random.IntN(4) {
			case 0:
				h.Reload(id)
			default:
				h.Evict(time.Millisecond)
			}
		case 5:
			if random.IntN(2) == 0 {
				total += int64(random.IntN(5))
				_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Total: &total})
				require.NoError(t, err)
			} else {
				killedAt([]string{"campaign read", "applied", "none"}[random.IntN(3)], func(step func(string)) {
					_, _ = resolve.RelayWithStep(relay(h), step).Relay(t.Context())
				})
			}
		}
	}
	h.Sync()
	require.NoError(t, h.Load(id))
	relayAll(h)
	h.Sync()
	requireSame(h, id)
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{int64(len(live)), released}, []int64{state.Taken, state.Released})
	told := map[string]int{}
	for _, e := range allEvents(h) {
		if e.Type == models.EventClaimReleased {
			told[e.ClaimID]++
		}
	}
	require.Len(t, told, int(released), "each release is told")
}
