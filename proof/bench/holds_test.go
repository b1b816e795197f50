package bench_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"

	"github.com/stretchr/testify/require"
)

const (
	holdConnections = 50
	dueClaims       = 50_000 // of one round: more than the sweep can end during the load
	dueHold         = 365 * 24 * time.Hour
	dueAhead        = 10 * time.Second // for their rows to be written before they are due
)

// benchHolds loads the API beside an idle syncer, then beside one that sweeps
// a year of holds ending together. All run on this machine.
func benchHolds(b *testing.B, s *sheet) {
	w := newWhole(b)
	s.Facts = append(w.facts(b), wrkVersion(b))
	w.span = longSpan() // many batches
	w.startBoth(b)
	// or claims of last year would be idle
	keeper := w.start(b, "syncer", "DIBS_IDLE_EVICT=10000h")
	held := newHeld(b, w)
	alone, beside := "claims", "claims beside a sweep"
	s.takeTurns([]func(){
		func() { w.accepted(b, s, alone, holdConnections) },
		func() {
			id := held.fall(b)
			started, before, cpu := time.Now(), held.left(b, id), keeper.cpu(b)
			w.accepted(b, s, beside, holdConnections)
			swept := before - held.left(b, id)
			s.add("swept in the meantime", "claims/s", float64(swept)/time.Since(started).Seconds())
			s.add("swept in the meantime: CPU of the syncer", "% of a core", 100*float64(keeper.cpu(b)-cpu)/float64(time.Since(started)))
			s.add("due claims left then", "claims", float64(before-swept))
			require.Positive(b, swept)
			held.forget(b, id)
		},
	})
	s.ratio(b, beside+" / "+alone, beside, alone, 0.9)
	s.ratio(b, beside+" / "+alone+": flush p99", beside+": flush p99", alone+": flush p99", 0)
	s.ratio(b, beside+" / "+alone+": p99", beside+": p99", alone+": p99", 0)
	s.note(fmt.Sprintf("`dibs api`, `dibs consumer` and `dibs syncer` as built for production, %d connections; Redis, SQL server and wrk share the cores with them.",
		holdConnections))
	s.note(fmt.Sprintf("Beside a sweep: %d claims of another campaign, made a year ago by the clock of Redis, all of them due as the load begins.",
		amount(dueClaims)))
}

type held struct {
	*whole

	past *broker // its clock is at
	at   atomic.Int64
	load *lots.Loader
}

func newHeld(b *testing.B, w *whole) *held {
	b.Helper()
	h := &held{whole: w}
	scripts, err := lua.New(w.broker.rdb, lua.Options{ServerClock: h.at.Load, Clock: func() time.Time { return time.UnixMilli(h.at.Load()) }})
	require.NoError(b, err)
	h.past = &broker{server: w.broker.server, rdb: w.broker.rdb, scripts: scripts}
	h.load = lots.New(w.store.gorm, w.broker.scripts, slog.New(slog.DiscardHandler), lots.Settle, nil)
	return h
}

// fall makes a campaign whose claims all have rows and are all
// due, and returns once the sweep works on them.
func (h *held) fall(b *testing.B) (id string) {
	b.Helper()
	id = fmt.Sprintf("held-%d", h.broker.made.Add(1))
	due := time.Now().Add(dueAhead)
	h.at.Store(due.Add(-dueHold).UnixMilli())
	_, _, err := campaigns.New(h.store.gorm, h.past.scripts, slog.New(slog.DiscardHandler)).Create(b.Context(), models.Campaign{
		ID: id, Kind: models.KindCoupon, Status: models.StatusOpen, TimeZone: "UTC", Total: plenty, PerUser: 3, HoldForMs: dueHold.Milliseconds(),
	})
	require.NoError(b, err)
	meta, err := h.load.Load(b.Context(), id)
	require.NoError(b, err)
	h.past.fill(b, meta, "user-1", amount(dueClaims), true)
	h.broker.fill(b, meta, "today-1", 1, true)
	h.untilDrained(b, id)
	require.Eventually(b, func() bool { return h.left(b, id) < int64(amount(dueClaims)) }, time.Minute, time.Millisecond)
	return id
}

// left is the number of the campaign's claims due but not swept.
func (h *held) left(b *testing.B, id string) (n int64) {
	b.Helper()
	require.NoError(b, h.store.sql.QueryRowContext(b.Context(), "SELECT claimed FROM campaigns WHERE id = ?", id).Scan(&n))
	return n - 1
}

// forget leaves the rest unswept: a busy machine would take long for it.
func (h *held) forget(b *testing.B, id string) {
	b.Helper()
	ctx := longAfter(b)
	_, err := h.store.sql.ExecContext(ctx, "DELETE FROM claims WHERE campaign_id = ?", id)
	require.NoError(b, err)
	require.Eventually(b, func() bool { // decisions are published
		var untold int64
		return h.store.sql.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox").Scan(&untold) == nil && untold == 0
	}, time.Minute, 20*time.Millisecond)
	_, err = h.store.sql.ExecContext(ctx, "DELETE d, l FROM definitions d JOIN lots l ON l.campaign_id = d.campaign_id WHERE d.campaign_id = ?", id)
	require.NoError(b, err)
	k := lua.KeysOf(id, 0)
	require.NoError(b, h.broker.rdb.Do(ctx, "DEL", k.State, k.Users, k.Keys).Err())
}
