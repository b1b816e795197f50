package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

// do runs deeds one after the other, each not before its time.
func (h *house) do(begun time.Time, deeds []deed, one func(d deed)) {
	for _, d := range deeds {
		time.Sleep(time.Until(begun.Add(d.at)))
		one(d)
	}
}

// strike is a fault. It is over when strike returns, but for processes, which are started again a while later.
func (h *house) strike(d deed) {
	switch d.what {
	case "kill api", "kill consumer", "kill syncer":
		l := pick(h.of(strings.TrimPrefix(d.what, "kill ")), d.who)
		l.endBy(l.kill9, d.lasts)
	case "stop any":
		l := pick(h.lives, d.who)
		l.endBy(l.leaveInPeace, d.lasts)
	case "depose leader": // its lease runs out
		_ = h.rdb.Del(h.t.Context(), lua.LeaderKey).Err() // Redis may be away
	case "cut mysql":
		h.sqlWire.Stop()
		time.Sleep(d.lasts)
		require.NoError(h.t, h.sqlWire.Start())
	case "reset mysql", "cut redis":
		wire := h.sqlWire
		if d.what == "cut redis" {
			wire = h.apiWire
		}
		cut(h.t, wire, []string{cutAnswers, resetOnData, cutRequests}[d.n%3])
		time.Sleep(d.lasts)
		mend(h.t, wire)
	case "flush scripts":
		_ = h.rdb.ScriptFlush(h.t.Context()).Err() // Redis may be away
	case "repair":
		h.repair()
	case "hush":
		pick(h.dramas, d.who).hush.Store(time.Now().Add(4 * d.lasts).UnixNano())
	default:
		h.strikeRedis(d)
	}
}

func pick[T any](from []T, n int) T { return from[n%len(from)] }

// strikeRedis is a fault of the one server.
func (h *house) strikeRedis(d deed) {
	what, unread := strings.CutSuffix(d.what, " unread")
	if unread { // nobody brings to MySQL what is about to be lost
		for _, l := range h.of("consumer") {
			l.endBy(l.kill9, 2*d.lasts)
		}
		time.Sleep(d.lasts)
	}
	switch what {
	case "kill redis":
		h.redis.Kill()
		time.Sleep(d.lasts)
		h.redis.StartRepaired()
	case "restart redis":
		h.redis.Stop()
		h.redis.Start()
	case "hang redis":
		h.redis.Pause()
		time.Sleep(d.lasts)
		h.redis.Resume()
	case "snapshot":
		require.NoError(h.t, h.rdb.Save(h.t.Context()).Err())
	case "roll back": // to the last snapshot, which may be none
		h.redis.Kill()
		time.Sleep(d.lasts)
		h.redis.Start()
	case "flush all":
		require.NoError(h.t, h.rdb.FlushAll(h.t.Context()).Err())
	default:
		require.FailNow(h.t, "no such deed", d.what)
	}
}

// leaveInPeace asks the process to end; what is not over by the time that SIGTERM has is killed, as an orchestrator does.
func (l *life) leaveInPeace() {
	_ = l.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-l.exited:
	case <-time.After(downTimeout):
		l.t.Errorf("dibs %s does not end:\n%s", l.command, l.tail())
		l.kill9()
	}
}

// repair runs `dibs reconcile --repair`, which may fail for what is away, and returns how it ended.
func (h *house) repair(flags ...string) outcome {
	return runDibs(h.t, map[string]string{
		"DIBS_PARTITIONS": fmt.Sprint(h.plan.partitions), "DIBS_REDIS_URL": h.redisURL,
		"DIBS_MYSQL_DSN": strings.Replace(h.dsn, addrOf(h.t, h.dsn), h.sqlWire.Listen, 1),
	}, append([]string{"reconcile", "--repair"}, flags...)...)
}

// operate is a change by the operator, and what puts it right after a while.
func (h *house) operate(d deed) {
	c := pick(h.dramas, d.who)
	switch d.what {
	case "total up":
		h.change(c, "total", c.totalNow()+d.n)
	case "total down":
		if c.Kind == packetKind {
			return // packets stay
		}
		h.change(c, "total", max(1, c.totalNow()-d.n/3))
	case "pause":
		h.change(c, "status", paused)
		time.Sleep(d.lasts)
		h.change(c, "status", open)
	case "per_user":
		h.change(c, "per_user", d.n%40)
	case "low_stock_at":
		h.change(c, "low_stock_at", d.n%25)
	case "starts_at":
		h.change(c, "starts_at", time.Now().Add(d.lasts).UnixMilli())
		time.Sleep(d.lasts)
	case "ends_at":
		h.change(c, "ends_at", time.Now().Add(d.lasts/2).UnixMilli())
		time.Sleep(d.lasts)
		h.change(c, "ends_at", never)
	default:
		require.FailNow(h.t, "no such change", d.what)
	}
}

// The values of a spell of status.
const (
	open int64 = iota
	paused
)

// never is far behind the end of the test.
const never = 4102444800000

// totalNow is the total that was asked for last.
func (d *drama) totalNow() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.spells["total"]
	return s[len(s)-1].value
}

// change asks for a change once, and books since when and until when which value may be in force.
func (h *house) change(d *drama, field string, value int64) (done bool) {
	url := pick(h.apis, int(h.restocks.Load()/2)).url
	if field == "total" && d.Kind == packetKind {
		return h.addPackets(d, url, value)
	}
	d.mu.Lock()
	d.spells[field] = append(d.spells[field], spell{value: value, from: time.Now()})
	d.mu.Unlock()
	if field == "total" {
		h.restocks.Add(1)
		defer h.restocks.Add(1)
	}
	var wire any = value
	switch {
	case field == "status":
		wire = map[int64]string{open: "open", paused: "paused"}[value]
	case strings.HasSuffix(field, "_at") && field != "low_stock_at":
		wire = time.UnixMilli(value).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	got := call(h.t, http.MethodPatch, url+"/v1/campaigns/"+d.ID, "", map[string]any{field: wire})
	// What contradicts another field is refused, and that one's last change may not be known to have been made.
	contradicts := []string{"starts_at", "ends_at", "per_user_per_day", "low_stock_at"}
	refused := got.status == http.StatusUnprocessableEntity && slices.Contains(contradicts, field)
	if got.err == nil && got.status != http.StatusOK && got.status != http.StatusServiceUnavailable && !refused {
		h.t.Errorf("PATCH %s %s=%v: %d %s", d.ID, field, wire, got.status, got.body)
	}
	if got.err != nil || got.status != http.StatusOK {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inForce(field)
	return true
}

// inForce ends all spells of a field but the last.
func (d *drama) inForce(field string) {
	s := d.spells[field]
	for i := range len(s) - 1 {
		if s[i].till.IsZero() {
			s[i].till = time.Now()
		}
	}
}

// insist changes until it is done.
func (h *house) insist(d *drama, field string, value int64) {
	h.t.Helper()
	deadline := time.Now().Add(drainWithin)
	for !h.change(d, field, value) {
		require.True(h.t, time.Now().Before(deadline), "%s of %s can't be changed", field, d.ID)
		time.Sleep(20 * time.Millisecond)
	}
}

// open makes the campaigns of the plan.
func (h *house) openAll() {
	h.t.Helper()
	for i, c := range h.plan.campaigns {
		c.ID, c.TimeZone = testenv.UniqueID(h.t, fmt.Sprintf("c%d", i)), zoneAtNoon(h.t)
		begun := time.Now()
		d := &drama{spells: map[string][]spell{}}
		total := c.Total
		if c.Kind == packetKind {
			total = 0
			d.campaign = openPackets(h.t, h.apis[0].url, c)
		} else {
			d.campaign = openCampaign(h.t, h.apis[0].url, c)
		}
		for field, value := range map[string]int64{
			"total": total, "per_user": c.PerUser, "per_user_per_day": c.PerUserPerDay, "low_stock_at": c.LowStockAt, "status": open,
			"starts_at": 1, "ends_at": never,
		} {
			d.spells[field] = []spell{{value: value, from: begun}}
		}
		if c.Kind == packetKind {
			h.insist(d, "total", c.Total)
			d.spells["total"] = d.spells["total"][1:] // nobody claimed before there were any
		}
		h.dramas = append(h.dramas, d)
	}
}

// heal makes everything well again and waits until it is.
func (h *house) heal() {
	h.t.Helper()
	h.awaitAll()
	if h.plan.lossy {
		h.repairUntilFine()
	}
	for _, d := range h.dramas {
		h.insist(d, "status", open)
		h.insist(d, "starts_at", 1)
		h.insist(d, "ends_at", never)
		h.insist(d, "per_user", 0)
		h.insist(d, "per_user_per_day", 0)
	}
}

// toGiveUp is what a repair says of answered claims that it can't bring back: nothing is left of them, or another has their place.
var toGiveUp = regexp.MustCompile(`still: (claims that were answered have no row|claim \S+ lost its place and can have no other)`)

// repairUntilFine is for what only a repair can tell. A Redis that was put back gives places away once more before anybody notices;
// of two claims with one place the second gets another, or the operator has to give it up.
func (h *house) repairUntilFine() {
	h.t.Helper()
	deadline := time.Now().Add(drainWithin)
	for {
		got := h.repair()
		if got.code == exitDrift && toGiveUp.MatchString(got.stdout) {
			got = h.repair("--give-up-claims")
		}
		if got.code == exitOK {
			return
		}
		require.True(h.t, time.Now().Before(deadline), "the books are not repaired: %d\n%s\n%s", got.code, got.stdout, got.stderr)
		time.Sleep(100 * time.Millisecond)
	}
}

// sellOut gives the last units to new users: with demand enough exactly total go.
func (h *house) sellOut(s *storefront, d *drama) {
	h.t.Helper()
	total := d.totalNow()
	if state, err := h.scripts.State(context.WithoutCancel(h.t.Context()), d.ID); err == nil && state.Taken >= total {
		total = state.Taken + 7 // a total below what is taken sells nothing
	}
	h.insist(d, "total", total)
	deadline := time.Now().Add(drainWithin)
	most := int64(lastAtOnce)
	if d.Kind == packetKind {
		most = 1
	}
	for refused, quantity := 0, most; refused < 3; {
		if refused == 2 {
			if h.mayComeBack(d) {
				refused, quantity = 0, most
				require.True(h.t, time.Now().Before(deadline), "units of %s are on their way for ever", d.ID)
				time.Sleep(100 * time.Millisecond)
				continue
			}
			time.Sleep(cacheFor) // an API process may have heard before the last unit came back
		}
		switch a := s.buyOne(d, quantity, deadline); {
		case a.last().claim != nil:
		case quantity > 1: // fewer are left
			quantity = 1
		default:
			refused++
		}
	}
}

// lastAtOnce is how many units one of the last claims wants.
const lastAtOnce = 16

// mayComeBack tells whether units may come back yet that were claimed.
func (h *house) mayComeBack(d *drama) bool { return h.undecided(d) || h.untold(d) > 0 }

// buyOne claims until it is told yes or sold out. What would expire is redeemed.
func (s *storefront) buyOne(d *drama, quantity int64, deadline time.Time) *asked {
	s.made++
	a := s.h.journal.add(&asked{drama: d, user: fmt.Sprintf("last-%d", s.made), quantity: quantity, key: fmt.Sprintf("last key %d", s.made)})
	for s.try(a); a.last().open(); s.try(a) {
		require.True(s.h.t, time.Now().Before(deadline), "%s takes no claims: %s", d.ID, a.last().code)
		time.Sleep(20 * time.Millisecond)
	}
	if a.last().claim == nil {
		require.Equal(s.h.t, "sold_out", a.last().code)
		return a
	}
	for d.HoldFor != "" {
		if e := s.end(a, redeemed); e.code == "" || e.code == "already_released" { // it may have expired by now
			break
		}
		require.True(s.h.t, time.Now().Before(deadline), "claim %s can't be redeemed: %+v", a.last().claim.ID, a.ends)
		time.Sleep(20 * time.Millisecond)
	}
	return a
}
