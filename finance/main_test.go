package finance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"dibs/finance"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/event"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const patience = time.Minute

func openBooks(t testing.TB, cfg finance.Config) *finance.Books {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = syncertest.Quiet()
	}
	b, err := finance.NewBooks(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, b.Close(ctx))
	})
	return b
}

func eventID(n int) string { return fmt.Sprintf("019c0000-0000-7000-8000-%012d", n) }

// packetClaim is the claim of the n-th packet, of n%997 cents, by one of 50
// users.
func packetClaim(n int) event.Event {
	return event.Event{
		V: event.Version, Type: event.ClaimAccepted, ID: eventID(n), CampaignID: "rain", UserID: fmt.Sprint("user ", n%50), Quantity: 1,
		Seq: int64(n) + 1, Epoch: 1, At: models.NewTime(time.Now()), PacketID: fmt.Sprintf("p%06d", n), Amount: new(int64(n % 997)), Currency: "EUR",
	}
}

func couponClaim(n int) event.Event {
	e := packetClaim(n)
	e.CampaignID, e.PacketID, e.Amount, e.Currency = "coupons", "", nil, ""
	return e
}

func closed(n int, sender string, left int64) event.Event {
	return event.Event{
		V: event.Version, Type: event.CampaignClosed, ID: eventID(n), CampaignID: "rain", UserID: sender, At: models.NewTime(time.Now()),
		Amount: &left, Currency: "EUR",
	}
}

// faults compares the books with the sent events: one entry per credit, no
// others, and accounts that are the sums of their entries. Every test ends
// with it.
func faults(t testing.TB, db *gorm.DB, events []event.Event) (found []string) {
	t.Helper()
	faultf := func(format string, args ...any) {
		if len(found) < 20 {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	due := map[string]finance.Entry{}
	for i := range events {
		if entry, credits, err := finance.EntryOf(&events[i]); err == nil && credits {
			due[entry.ClaimID] = entry
		}
	}
	var entries []finance.Entry
	require.NoError(t, db.Find(&entries).Error)
	booked := map[string]bool{}
	var credited, owed, held int64
	for _, e := range entries {
		want, asked := due[e.ClaimID]
		packet := func(id *string) string { b, _ := json.Marshal(id); return string(b) }
		switch {
		case !asked:
			faultf("entry %s was never due", e.ClaimID)
		case want.UserID != e.UserID || want.Amount != e.Amount || want.Currency != e.Currency || want.CampaignID != e.CampaignID ||
			packet(want.PacketID) != packet(e.PacketID) || !want.ClaimedAt.Equal(e.ClaimedAt):
			faultf("entry %s says %+v, due was %+v", e.ClaimID, e, want)
		}
		booked[e.ClaimID] = true
		credited += e.Amount
	}
	sums := map[string][2]int64{}
	for id, e := range due {
		if !booked[id] {
			faultf("no entry for %s", id)
		}
		owed += e.Amount
		s := sums[e.UserID+" "+e.Currency]
		sums[e.UserID+" "+e.Currency] = [2]int64{s[0] + e.Amount, s[1] + 1}
	}
	var accounts []finance.Account
	require.NoError(t, db.Find(&accounts).Error)
	for _, a := range accounts {
		held += a.Amount
		if want := sums[a.UserID+" "+a.Currency]; want != [2]int64{a.Amount, a.Entries} {
			faultf("account of %s holds %d in %d entries, due are %v", a.UserID, a.Amount, a.Entries, want)
		}
		delete(sums, a.UserID+" "+a.Currency)
	}
	for key := range sums {
		faultf("no account of %s", key)
	}
	if credited != owed || held != owed {
		faultf("events %d, entries %d, accounts %d", owed, credited, held)
	}
	return found
}
