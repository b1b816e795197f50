package finance_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/finance"
	"dibs/internal/syncertest"
	"dibs/models"
)

func givenUp(n int, claims ...models.Event) models.Event {
	e := models.Event{
		V: models.EventVersion, Type: models.EventClaimsGivenUp, ID: eventID(n), CampaignID: claims[0].CampaignID, Epoch: 2, At: claims[0].At,
	}
	for i := range claims {
		e.IDs = append(e.IDs, claims[i].ID)
	}
	return e
}

// A claim that was never answered, but credited by a group ahead of MySQL,
// must credit nothing in the end.
func TestBooks_ADroppedClaimIsReversed(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db})
		revoked := packetClaim(1)
		dropped := givenUp(2, revoked)
		dropped.Type = models.EventClaimsDropped
		for _, e := range []models.Event{revoked, dropped, dropped, revoked} {
			require.NoError(t, books.Handle(t.Context(), e, nil))
		}
		entries, accounts := sumsOf(t, db)
		require.Zero(t, entries)
		require.Zero(t, accounts)
	})
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
		requireHandled := func(events ...models.Event) {
			t.Helper()
			for _, err := range handIn(t, books, events...) {
				require.NoError(t, err)
			}
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
	})
}

// Only the finance service knows the id of a claim that Redis lost. The
// credit at its seq must be reversed once. seq counts per shard: the same
// seq of another shard keeps its credit.
func TestBooks_AGivenUpPlaceIsReversedOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db})
		kept, lost, next := packetClaim(1), packetClaim(2), packetClaim(3)
		lost.Shard, next.Shard = 1, 1
		kept.Shard, kept.Seq = 2, lost.Seq
		next.PacketID, next.Amount = lost.PacketID, lost.Amount
		ranges := givenUp(9, kept)
		ranges.Shard = 1
		ranges.IDs, ranges.Seqs = nil, [][2]int64{{lost.Seq, lost.Seq}, {70, 90}}
		other := ranges
		other.ID, other.CampaignID = eventID(10), "another"
		for _, e := range []models.Event{kept, lost, other, ranges, next, ranges, lost} {
			require.NoError(t, handIn(t, books, e)[0])
		}
		entries, accounts := sumsOf(t, db)
		require.Equal(t, []int64{*kept.Amount + *next.Amount, *kept.Amount + *next.Amount}, []int64{entries, accounts})
	})
}

// The credit and its reversal arrive together, after the finance service
// was down.
func TestBooks_ACreditAndItsReversalAtOnceAddUpToNothing(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db})
		var events []models.Event
		for n := range 50 {
			claim := packetClaim(n)
			events = append(events, claim, givenUp(1000+n, claim))
		}
		for left := events; len(left) > 0; { // what failed is redelivered, as by the consumer
			var again []models.Event
			for i, err := range handIn(t, books, left...) {
				if err != nil {
					again = append(again, left[i])
				}
			}
			left = again
		}
		entries, accounts := sumsOf(t, db)
		require.Equal(t, "0 0", fmt.Sprint(entries, accounts))
	})
}

// If a given-up claim's packet goes to another claim, that one must be paid.
func TestBooks_ThePacketOfAGivenUpClaimIsPaidToTheNext(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db})
		revoked, next := packetClaim(1), packetClaim(2)
		next.PacketID, next.Amount, next.Seq = revoked.PacketID, revoked.Amount, revoked.Seq
		for _, e := range []models.Event{revoked, givenUp(9, revoked), next, revoked, givenUp(9, revoked), next} {
			require.NoError(t, handIn(t, books, e)[0])
		}
		entries, accounts := sumsOf(t, db)
		require.Equal(t, []int64{*next.Amount, *next.Amount}, []int64{entries, accounts})
	})
}
