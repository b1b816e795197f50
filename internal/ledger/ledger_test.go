package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"dibs/internal/ledger"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/calendar"
	"dibs/models/event"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// told returns the streams' events that a ledger has, in its order, as JSON.
func told(h *syncertest.Stack, campaignID string) (all []string) {
	h.T.Helper()
	entries, err := h.Redis.XRange(h.T.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(h.T, err)
	var events []event.Event
	for _, entry := range entries {
		e, err := event.Decode([]byte(fmt.Sprint(entry.Values["payload"])))
		require.NoError(h.T, err)
		if e.CampaignID == campaignID && !e.IsOfLot() && e.Type != event.CampaignLowStock && e.Type != event.CampaignSoldOut {
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b event.Event) int {
		if event.PlaceOf(&a).Before(event.PlaceOf(&b)) {
			return -1
		}
		return 1
	})
	return slices.Compact(lines(h, events)) // delivery is at least once
}

func lines(h *syncertest.Stack, events []event.Event) (all []string) {
	h.T.Helper()
	for i := range events {
		line, err := json.Marshal(&events[i])
		require.NoError(h.T, err)
		all = append(all, string(line))
	}
	return all
}

// recorded marks the streams complete, as the syncer does, a
// moment after the last claim.
func recorded(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Maintainer().Complete(h.T.Context()))
	h.Exec("UPDATE streams SET complete_at = ?", time.Now().UTC().Add(2*time.Second))
}

func read(h *syncertest.Stack, campaignID string, limit int) (events []event.Event) {
	h.T.Helper()
	var after event.Place
	for {
		page, _, err := ledger.New(h.DB).Page(h.T.Context(), campaignID, after, limit)
		require.NoError(h.T, err)
		if len(page) == 0 {
			return events
		}
		require.LessOrEqual(h.T, len(page), limit)
		events = append(events, page...)
		cursor := event.PlaceOf(&page[len(page)-1]).String()
		after, err = event.ParsePlace(cursor)
		require.NoError(h.T, err)
	}
}

func resolver(h *syncertest.Stack) (*resolve.Resolver, *resolve.Relay) {
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	return resolve.NewResolver(h.DB, relay, syncertest.Quiet()), relay
}

// used makes a closed campaign with redeemed, released and expired claims.
func used(h *syncertest.Stack) (id string) {
	t := h.T
	t.Helper()
	id = h.Create(100, func(c *models.Campaign) { c.HoldForMs = 1 })
	claims := h.Take(id, syncertest.Asks("u", 30)...)
	resolver, relay := resolver(h)
	for i, claim := range claims[:10] {
		_, err := resolver.Redeem(t.Context(), claim, fmt.Sprint("o-", i))
		require.NoError(t, err)
		_, err = resolver.Release(t.Context(), claims[10+i], "changed \"their\" mind")
		require.NoError(t, err)
	}
	for _, again := range []func() (models.Resolution, error){
		func() (models.Resolution, error) { return resolver.Reopen(t.Context(), claims[0], "o-0", "refunded") },
		func() (models.Resolution, error) { return resolver.Redeem(t.Context(), claims[0], "again") },
	} {
		res, err := again()
		require.NoError(t, err)
		require.Equal(t, models.ResolvedNow, res.Resolved)
	}
	claims = append(claims, h.Take(id, syncertest.Asks("v", 5)...)...)
	require.Eventually(t, func() bool {
		_, err := resolve.NewExpirer(relay, nil, nil).Expire(t.Context())
		require.NoError(t, err)
		h.Sync()
		return h.Campaign(id).ReleasedClaims == int64(len(claims)-10)
	}, 10*time.Second, time.Millisecond)
	h.Shut(id)
	h.Sync() // the releases
	finish(h, relay)
	return id
}

func finish(h *syncertest.Stack, relay *resolve.Relay) {
	h.T.Helper()
	clock := clockwork.NewFakeClock()
	finalizer := resolve.NewFinalizer(relay, h.Loader(), clock, nil)
	for range 2 {
		_, err := finalizer.Finalize(h.T.Context())
		require.NoError(h.T, err)
		clock.Advance(resolve.ReturnDelay)
	}
	syncertest.ApplyOutbox(h.T, h.DB, relay)
	h.Sync()
}

func TestLedger_HasTheEventsOfTheStreamInOrderPageByPage(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := used(h)
	recorded(h)
	want := told(h, id)
	require.Len(t, want, 35+11+1+25+1)
	for _, limit := range []int{1, 7, 1000} {
		require.Equal(t, want, lines(h, read(h, id, limit)))
	}
}

func TestLedger_EndsBeforeClaimsThatAreOnTheirWay(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	recorded(h)
	require.Len(t, read(h, id, 10), 3)
	h.Exec("UPDATE streams SET complete_at = '2020-01-01'")
	h.Claim(id, syncertest.Asks("v", 4)...)
	all := told(h, id)
	for i, e := range all[3:] { // row by row, the newest first
		var event event.Event
		require.NoError(t, json.Unmarshal([]byte(all[len(all)-1-i]), &event))
		require.Less(t, len(read(h, id, 10)), 4, "%d rows of the later claims are there, not %s", i, e)
		require.NoError(t, syncertest.Submit(t.Context(), h.Writer, event))
	}
	h.Sync() // acknowledges them
	recorded(h)
	require.Equal(t, all, lines(h, read(h, id, 10)))
}

// Otherwise a running transaction could add events before a
// bound already given to readers.
func TestLedger_WaitsForDecisionsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("u", 1)...)
	recorded(h)
	e := event.Event{V: event.Version, Type: event.CampaignClosed, ID: "late", CampaignID: id}
	e.At = models.NewTime(time.Now().Add(-time.Hour))
	for _, id := range []string{"late", "later"} {
		e.ID = id
		var upto time.Time
		require.NoError(t, h.DB.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
			err := ledger.Put(t.Context(), tx, []event.Event{e})
			require.NoError(t, err)
			_, upto, err = ledger.New(h.DB).Page(t.Context(), e.CampaignID, event.Place{}, 10)
			return err
		}))
		var at time.Time
		require.NoError(t, h.DB.Raw("SELECT at FROM ledger_events WHERE id = ?", id).Scan(&at).Error)
		require.False(t, at.Before(upto), "%s is before %s, which was told to be complete", at, upto)
	}
}

func TestLedger_WaitsForParkedClaimsAndShowsThatTheyWereGivenUp(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Refusing()
	recorded(h)
	all := told(h, id)
	at := slices.IndexFunc(read(h, id, 100), func(e event.Event) bool { return e.UserID == "u-3" })
	require.Equal(t, -1, at)
	require.Less(t, len(read(h, id, 100)), 10)
	h.Repair(id, true)
	_, relay := resolver(h)
	syncertest.ApplyOutbox(t, h.DB, relay)
	h.Sync()
	c := h.Campaign(id)
	require.EqualValues(t, 10, c.SyncedSeq+c.GivenUpClaims, "a claim that was given up counts, or its seq would look like one on its way")
	recorded(h)
	events := read(h, id, 3)
	require.Equal(t, told(h, id), lines(h, events))
	require.Equal(t, all, lines(h, events[:10]))
	require.Equal(t, event.ClaimsGivenUp, events[10].Type)
	require.EqualValues(t, 1, events[10].Quantity)
}

// After Redis came back older, its claims have seqs of earlier ones. They
// are later all the same.
func TestLedger_ClaimsWhoseSeqsOverlap(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(1000, nil)
	ids := h.Take(id, syncertest.Asks("u", 3)...)
	before := syncertest.DumpRedis(t, h.Redis)
	ids = append(ids, h.Take(id, syncertest.Asks("lost", 120)...)...)
	before.Restore(t, h.Redis)
	ids = append(ids, h.Take(id, syncertest.Asks("again", 110)...)...)
	h.Reload(id)
	ids = append(ids, h.Take(id, syncertest.Asks("last", 3)...)...)
	recorded(h)
	for _, limit := range []int{1, 50, 1000} {
		var have []string
		for _, e := range read(h, id, limit) {
			have = append(have, e.ID)
		}
		require.Equal(t, ids, have, "pages of %d", limit)
	}
	var between time.Time
	require.NoError(t, h.DB.Raw("SELECT claimed_at FROM claims WHERE id = ?", ids[3+120]).Scan(&between).Error)
	reader := ledger.New(h.DB)
	for _, day := range []calendar.Day{
		{From: between.Add(-time.Hour), To: between, Zone: time.UTC}, {From: between, To: between.Add(time.Hour), Zone: time.UTC},
	} {
		s, err := reader.Settle(t.Context(), day)
		require.NoError(t, err)
		claims := map[bool]int64{true: 3 + 120, false: 110 + 3}[day.To.Equal(between)]
		require.Equal(t, claims, s.Sums[0].Claims)
	}
}

func TestLedger_GivenUpClaimsComeBackAfterARestore(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Refusing()
	dump := syncertest.DumpOf(t, h.DB)
	h.Repair(id, true)
	_, relay := resolver(h)
	syncertest.ApplyOutbox(t, h.DB, relay)
	h.Sync()
	recorded(h)
	want := lines(h, read(h, id, 100))
	require.NoError(t, dump.Restore(h.DB))
	h.Exec("UPDATE settings SET value = '1970-01-01 00:00:00.000' WHERE name = 'ledger_upto'") // a real dump has it
	for range 2 {                                                                              // the second time it is known
		h.Sync()
		recorded(h)
		require.Equal(t, want, lines(h, read(h, id, 100)))
		_, at, err := h.Writer.Begin(t.Context(), 0)
		require.NoError(t, err)
		moved, err := h.Writer.Move(t.Context(), 0, at, event.NoOffset())
		require.NoError(t, err)
		require.True(t, moved)
	}
}

func TestLedger_ReadsTheArchive(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := used(h)
	recorded(h)
	want := read(h, id, 100)
	archive := func(before time.Time) int64 {
		evictor := lots.NewKeeper(h.Loader(), lots.MinIdle, nil)
		evict := func(ctx context.Context, id string) error {
			h.Sync()
			_, err := evictor.EvictOne(ctx, id)
			h.Sync() // as the consumer does
			return err
		}
		n, err := retention.NewArchiver(h.DB, evict, func(int) {}).Archive(t.Context(), id, before)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 30, archive(want[30].At.Time))
	require.Equal(t, want, read(h, id, 9))
	require.EqualValues(t, 5, archive(time.Now().Add(time.Minute)))
	require.Equal(t, want, read(h, id, 9))
}
