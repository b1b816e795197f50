package resolve_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/resolve"
)

// aClaim is a claim in the model. Its hold has
// ended unless it was extended or restarted.
type aClaim struct {
	status   models.ClaimStatus
	order    string
	isLater  bool // its hold ends later
	reopened string
	extended string
}

type act struct {
	name  string
	do    func(r *resolve.Resolver, t *testing.T, claim string) (models.Resolution, error)
	model func(c *aClaim) models.Resolved
}

func (c *aClaim) decided() models.Resolved {
	switch c.status {
	case models.ClaimRedeemed:
		return models.ResolvedAlreadyRedeemed
	case models.ClaimClaimed:
		return models.ResolvedNow
	}
	return models.ResolvedAlreadyReleased
}

func redeems(order string) act {
	return act{"redeem " + order, func(r *resolve.Resolver, t *testing.T, claim string) (models.Resolution, error) {
		return r.Redeem(t.Context(), claim, order)
	}, func(c *aClaim) models.Resolved {
		if c.status == models.ClaimRedeemed && c.order == order {
			return models.ResolvedBefore
		}
		was := c.decided()
		if was == models.ResolvedNow {
			c.status, c.order = models.ClaimRedeemed, order
		}
		return was
	}}
}

var acts = []act{
	redeems("a"), redeems("b"),
	{"reopen", func(r *resolve.Resolver, t *testing.T, claim string) (models.Resolution, error) {
		return r.Reopen(t.Context(), claim, "a", "")
	}, func(c *aClaim) models.Resolved {
		switch {
		case c.reopened == "a":
			return models.ResolvedBefore
		case c.status == models.ClaimClaimed:
			return models.ResolvedNotRedeemed
		case c.status != models.ClaimRedeemed || c.order != "a":
			return c.decided()
		}
		*c = aClaim{status: models.ClaimClaimed, isLater: true, reopened: "a", extended: c.extended}
		return models.ResolvedNow
	}},
	{"release", func(r *resolve.Resolver, t *testing.T, claim string) (models.Resolution, error) {
		return r.Release(t.Context(), claim, "")
	}, func(c *aClaim) models.Resolved {
		was := c.decided()
		switch was {
		case models.ResolvedNow:
			c.status = models.ClaimReleased
		case models.ResolvedAlreadyReleased:
			return models.ResolvedBefore
		}
		return was
	}},
	{"extend", func(r *resolve.Resolver, t *testing.T, claim string) (models.Resolution, error) {
		return r.Extend(t.Context(), claim, 10*time.Second, "k")
	}, func(c *aClaim) models.Resolved {
		was := c.decided()
		switch {
		case was != models.ResolvedNow:
			return was
		case c.extended != "":
			return models.ResolvedBefore
		}
		c.extended, c.isLater = "k", true
		return was
	}},
}

var expiry = act{name: "expire", model: func(c *aClaim) models.Resolved {
	if c.status == models.ClaimClaimed && !c.isLater {
		c.status = models.ClaimExpired
		return models.ResolvedNow
	}
	return ""
}}

// schedules are the orders in which three actors read a claim and then
// write it. Each number is an actor: its first occurrence is the read,
// its second the write. Orders that differ in reads alone are left out.
func schedules() (all [][]int) {
	var next func(done []int)
	seen := make(map[string]bool)
	next = func(done []int) {
		if len(done) == 6 {
			// the writers in order, and how many writes each read came after
			var order, stale []int
			reads := make(map[int]int)
			for _, who := range done {
				if _, has := reads[who]; !has {
					reads[who] = len(order)
					continue
				}
				order = append(order, who)
				stale = append(stale, reads[who])
			}
			key := fmt.Sprint(order, stale)
			if !seen[key] {
				seen[key] = true
				all = append(all, slices.Clone(done))
			}
			return
		}
		for who := range 3 {
			if n := len(slices.DeleteFunc(slices.Clone(done), func(w int) bool { return w != who })); n < 2 {
				next(append(done, who))
			}
		}
	}
	next(nil)
	return all
}

// actor stops after its first read until goOn.
type actor struct {
	goOn, stopped, ended chan struct{}
	isStopped            sync.Once
	result               models.Resolved
	err                  error
}

func (a *actor) step(name string) {
	if name == "found" {
		a.isStopped.Do(func() {
			close(a.stopped)
			<-a.goOn
		})
	}
}

func play(schedule []int, run [3]func(a *actor)) (results [3]models.Resolved, err error) {
	var actors [3]*actor
	for _, who := range schedule {
		a := actors[who]
		if a != nil {
			close(a.goOn)
			<-a.ended
			continue
		}
		a = &actor{goOn: make(chan struct{}), stopped: make(chan struct{}), ended: make(chan struct{})}
		actors[who] = a
		go func() {
			defer close(a.ended)
			run[who](a)
		}()
		select {
		case <-a.stopped:
		case <-a.ended:
		}
	}
	for i, a := range actors {
		results[i] = a.result
		if a.err != nil {
			err = a.err
		}
	}
	return results, err
}

// Concurrent actions of two callers and the
// expirer have the outcome of some serial order.
func TestDecisions_EveryInterleavingIsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for i, x := range acts {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			interleave(t, x, acts[i:])
		})
	}
}

func interleave(t *testing.T, x act, others []act) {
	t.Helper()
	h, ms := clocked(t, syncertest.OpenServer(t))
	// what is reopened, at this machine's time, is due much later
	ms.Add(-12 * time.Hour.Milliseconds())
	id := h.Create(1_000_000, hold(20*time.Second))
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	cleaner := resolver(h)
	one := func(claim string, isRedeemed bool, y act, schedule []int) {
		start := aClaim{status: models.ClaimClaimed}
		if isRedeemed {
			_, err := cleaner.Redeem(t.Context(), claim, "a")
			require.NoError(t, err)
			start = aClaim{status: models.ClaimRedeemed, order: "a"}
		}
		calls := func(do act) func(a *actor) {
			return func(a *actor) {
				res, err := do.do(resolve.ResolverWithStep(resolver(h), a.step), t, claim)
				a.result, a.err = res.Resolved, err
			}
		}
		results, err := play(schedule, [3]func(a *actor){calls(x), calls(y), func(a *actor) {
			n, err := resolve.ExpirerWithStep(expirer(h, 100), a.step).Expire(t.Context())
			a.err = err
			if n == 1 {
				a.result = models.ResolvedNow
			}
		}})
		what := fmt.Sprintf("%s and %s of a claim, redeemed %t, %v", x.name, y.name, isRedeemed, schedule)
		require.NoError(t, err, what)
		var row stored.ClaimRow
		require.NoError(t, h.DB.Where("id = ?", claim).Take(&row).Error)
		is := aClaim{status: row.Status}
		if row.OrderID != nil {
			is.order = *row.OrderID
		}
		of := []act{x, y, expiry}
		isOneAfterTheOther := slices.ContainsFunc(orders, func(order []int) bool {
			c := start
			var says [3]models.Resolved
			for _, who := range order {
				says[who] = of[who].model(&c)
			}
			return says == results && c.status == is.status && (c.status != models.ClaimRedeemed || c.order == is.order)
		})
		require.True(t, isOneAfterTheOther, "%s: answers %q, and then it is %+v", what, results, is)
		if is.status == models.ClaimClaimed {
			_, err := cleaner.Release(t.Context(), claim, "")
			require.NoError(t, err)
		}
	}
	type played struct {
		isRedeemed bool
		y          act
		schedule   []int
	}
	var all []played
	for _, y := range others {
		canReopen := x.name == "reopen" || y.name == "reopen"
		for _, schedule := range schedules() {
			if x.name == y.name && slices.Index(schedule, 0) > slices.Index(schedule, 1) {
				continue // another schedule is the same with the two swapped
			}
			all = append(all, played{false, y, schedule})
			if canReopen || slices.Index(schedule, 2) == 4 { // else the expirer finds nothing
				all = append(all, played{true, y, schedule})
			}
		}
	}
	claims := make([]string, len(all))
	for i := range all { // each is due a second after the one before
		ms.Add(1000)
		claims[i] = h.Claim(id, syncertest.Ask(fmt.Sprint("u", i), ""))[0].Claim.ID
	}
	h.Sync()
	ms.Add(20_001 - int64(len(all))*1000)
	for i, p := range all {
		ms.Add(1000)
		one(claims[i], p.isRedeemed, p.y, p.schedule)
	}
	requireSame(h, id)
}
