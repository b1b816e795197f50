package finance_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/finance"
	"dibs/internal/testkit/syncertest"
	"dibs/models/event"
)

func givenUp(n int, claims ...event.Event) event.Event {
	e := event.Event{
		V: event.Version, Type: event.ClaimsGivenUp, ID: eventID(n), CampaignID: claims[0].CampaignID, Epoch: 2, At: claims[0].At,
	}
	for i := range claims {
		e.IDs = append(e.IDs, claims[i].ID)
	}
	return e
}

func sumsOf(t testing.TB, db *gorm.DB) (entries, accounts int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT COALESCE(SUM(amount), 0) FROM account_entries").Scan(&entries).Error)
	require.NoError(t, db.Raw("SELECT COALESCE(SUM(amount), 0) FROM accounts").Scan(&accounts).Error)
	return entries, accounts
}

// A given-up claim must credit nothing in the end, whatever comes first and
// however often.
func TestBooks_AGivenUpClaimIsReversedOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db})
		kept, revoked, late := packetClaim(1), packetClaim(2), packetClaim(3)
		requireHandled := func(events ...event.Event) {
			t.Helper()
			require.NoError(t, errors.Join(handIn(t, books, events...)...))
		}
		requireHandled(kept, revoked)
		for range 2 {
			requireHandled(givenUp(9, revoked, late, couponClaim(4)))
			requireHandled(kept, revoked, late)
			entries, accounts := sumsOf(t, db)
			require.Equal(t, *kept.Amount, entries)
			require.Equal(t, *kept.Amount, accounts)
		}
		var reversal finance.Entry
		require.NoError(t, db.Where("claim_id = ?", "given_up:"+revoked.ID).Take(&reversal).Error)
		require.Equal(t, []any{revoked.UserID, -*revoked.Amount}, []any{reversal.UserID, reversal.Amount})

		// credits and their reversals arrive together, after the service was down
		var events []event.Event
		for n := range 50 {
			claim := packetClaim(100 + n)
			events = append(events, claim, givenUp(1000+n, claim))
		}
		require.NoError(t, handInUntilTaken(t, books, events))
		entries, accounts := sumsOf(t, db)
		require.Equal(t, []int64{*kept.Amount, *kept.Amount}, []int64{entries, accounts})
	})
}

// Whatever is redelivered, these events in their order must add up to the sum of
// the packets that are paid.
func TestBooks_AfterReversalsOnlyWhatIsPaidCounts(t *testing.T) {
	t.Parallel()
	first, second, third := packetClaim(1), packetClaim(2), packetClaim(3)
	dropped := givenUp(9, first)
	dropped.Type = event.ClaimsDropped
	ofFirst := second
	ofFirst.PacketID, ofFirst.Amount, ofFirst.Seq = first.PacketID, first.Amount, first.Seq

	// A claim that Redis lost has no id but to the finance service. seq counts
	// per shard: the same seq of another shard keeps its credit.
	kept, lost, next := first, second, third
	lost.Shard, next.Shard = 1, 1
	kept.Shard, kept.Seq = 2, lost.Seq
	next.PacketID, next.Amount = lost.PacketID, lost.Amount
	ranges := givenUp(9, kept)
	ranges.Shard = 1
	ranges.IDs, ranges.Seqs = nil, [][2]int64{{lost.Seq, lost.Seq}, {70, 90}}
	elsewhere := ranges
	elsewhere.ID, elsewhere.CampaignID = eventID(10), "another"
	for name, c := range map[string]struct {
		events []event.Event
		paid   int64
	}{
		"a claim that was credited ahead of MySQL and never answered": {[]event.Event{first, dropped, dropped, first}, 0},
		"the packet of a given-up claim goes to the next": {
			[]event.Event{first, givenUp(9, first), ofFirst, first, givenUp(9, first), ofFirst}, *ofFirst.Amount,
		},
		"a place that was given up": {
			[]event.Event{kept, lost, elsewhere, ranges, next, ranges, lost}, *kept.Amount + *next.Amount,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
				books := openBooks(t, finance.Config{DB: db})
				for _, e := range c.events {
					require.NoError(t, books.Handle(t.Context(), e, nil))
				}
				entries, accounts := sumsOf(t, db)
				require.Equal(t, []int64{c.paid, c.paid}, []int64{entries, accounts})
			})
		})
	}
}
