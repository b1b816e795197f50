package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// storefronts is how many clients a house has.
const storefronts = 8

// seedsOf are the seeds of this run: those of DIBS_SEED, which is one or a range such as 10-20, or the first ones.
func seedsOf(t *testing.T, short, full int) (seeds []uint64) {
	t.Helper()
	first, last := uint64(1), uint64(testenv.Pick(short, full))
	if text := os.Getenv("DIBS_SEED"); text != "" {
		from, till, isRange := strings.Cut(text, "-")
		var err error
		first, err = strconv.ParseUint(from, 10, 64)
		require.NoError(t, err)
		last = first
		if isRange {
			last, err = strconv.ParseUint(till, 10, 64)
			require.NoError(t, err)
		}
	}
	for seed := first; seed <= last; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

// TestScheduleOfASafeRedis: claims, evictions, restocks, pauses, changes of limits and windows, deaths of every process, cuts
// of every wire, and a Redis that dies and keeps what it answered, while claims of one campaign expire and another hands out packets. I1 to I9 hold, and every answer was right at its time.
// DIBS_SEED repeats one schedule.
func TestScheduleOfASafeRedis(t *testing.T) {
	t.Parallel()
	runSeeds(t, false, seedsOf(t, 2, 40))
}

// TestScheduleOfAForgetfulRedis is the same with a Redis that is emptied and put back to older snapshots: what was answered
// may be lost, and is counted; nothing is oversold, nobody gets more than the limits, and after a repair all goes on.
func TestScheduleOfAForgetfulRedis(t *testing.T) {
	t.Parallel()
	runSeeds(t, true, seedsOf(t, 2, 40))
}

func runSeeds(t *testing.T, lossy bool, seeds []uint64) {
	t.Helper()
	l := newLane(t, lossy)
	var claims, told, lost, lack int64
	for _, seed := range seeds {
		lived := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := planOf(seed, lossy)
			v := runPlan(t, l, &p, nil)
			t.Logf("seed %d: %d rows, %d expired, %d told, %d of these lost, %d places given up, %d loads, answers %v",
				seed, v.claims, v.expired, v.told, v.lost, v.lack, v.epochs, v.refused)
			if len(v.wrong) > 0 {
				t.Log(p.String())
			}
			require.Empty(t, v.wrong)
			claims, told, lost, lack = claims+v.claims, told+v.told, lost+v.lost, lack+v.lack
		})
		if !lived && !testenv.Soak() {
			return
		}
	}
	t.Logf("%d seeds: %d claims, %d told, %d of these lost, %d places given up", len(seeds), claims, told, lost, lack)
}

// runPlan has a plan happen to a house of its own. rogue is a part that is broken on purpose and works beside the others.
func runPlan(t *testing.T, l *lane, p *plan, rogue func(h *house, stop <-chan struct{})) *verdict {
	t.Helper()
	h := newHouse(t, l, p)
	h.openAll()
	var ids []string
	for _, d := range h.dramas {
		ids = append(ids, d.ID)
	}
	h.dba = watchBooks(h.servers, ids, h.restocks.Load, !p.lossy)
	stop, stopRogue := make(chan struct{}), make(chan struct{})
	var wg, rogues sync.WaitGroup
	t.Cleanup(func() { h.dba.stop() })
	for n := range storefronts {
		s := h.newStorefront(n)
		wg.Go(func() { s.run(stop) })
	}
	if rogue != nil {
		rogues.Go(func() { rogue(h, stopRogue) })
	}
	begun := time.Now()
	var deeds sync.WaitGroup
	deeds.Go(func() { h.do(begun, p.faults, h.strike) })
	deeds.Go(func() { h.do(begun, p.changes, h.operate) })
	deeds.Wait()
	time.Sleep(time.Until(begun.Add(p.lasts)))
	close(stop)
	wg.Wait()
	close(stopRogue)
	rogues.Wait()
	if p.control {
		return h.judge(t.Context(), controlWithin)
	}
	h.heal()
	last := h.newStorefront(storefronts)
	for _, d := range h.dramas {
		h.sellOut(last, d)
	}
	v := h.judge(t.Context(), drainWithin)
	if got := runDibs(t, h.lives[0].settings, "reconcile"); got.code != exitOK {
		v.wrong.addf("dibs reconcile ends with %d:\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	return v
}
