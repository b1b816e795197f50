package finance_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"dibs/consumer"
	"dibs/finance"
	"dibs/internal/testkit/syncertest"
	"dibs/models/event"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

func handIn(t testing.TB, b *finance.Books, events ...event.Event) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	verdicts := make([]error, len(events))
	var all errgroup.Group
	for i, e := range events {
		all.Go(func() error { verdicts[i] = b.Handle(ctx, e, nil); return nil })
	}
	require.NoError(t, all.Wait())
	return verdicts
}

// handInUntilTaken redelivers what failed, as the consumer does.
func handInUntilTaken(t testing.TB, b *finance.Books, left []event.Event) error {
	for len(left) > 0 {
		var again []event.Event
		for i, err := range handIn(t, b, left...) {
			if errors.Is(err, consumer.ErrPermanent) {
				return err
			}
			if err != nil {
				again = append(again, left[i])
			}
		}
		left = again
	}
	return nil
}

func TestBooks_OneEntryAClaimWhateverIsRedelivered(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db, BatchSize: 64, Interval: 5 * time.Millisecond})
		var events []event.Event
		for n := range 250 {
			packet := packetClaim(n)
			packet.Currency = []string{"EUR", "USD", ""}[n%3] // several of a user in one batch
			events = append(events, packet, couponClaim(10_000+n))
		}
		events = append(events, closed(20_000, "the sender", 12345))
		sent := append(append(append([]event.Event(nil), events...), events[:150]...), events[100:]...)
		rand.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
		for _, err := range handIn(t, books, sent...) {
			require.NoError(t, err)
		}
		require.Empty(t, faults(t, db, events))
		for _, err := range handIn(t, books, events...) {
			require.NoError(t, err)
		}
		require.Empty(t, faults(t, db, events))
	})
}

// Several processes get the same events, as after a group was lost and
// recreated, or entries were taken over too early. Each must be credited
// once.
func TestBooks_SeveralAtOnceWithTheSameEvents(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		var events []event.Event
		for n := range 300 {
			events = append(events, packetClaim(n))
		}
		var all errgroup.Group
		for range 4 {
			books := openBooks(t, finance.Config{DB: db, BatchSize: 100})
			mine := append([]event.Event(nil), events...)
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			all.Go(func() error { return handInUntilTaken(t, books, mine) })
		}
		require.NoError(t, all.Wait())
		require.Empty(t, faults(t, db, events))
	})
}

func TestBooks_WhatCanNeverBeCreditedIsPermanentAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db, Interval: 20 * time.Millisecond})
		require.NoError(t, books.Handle(t.Context(), packetClaim(1), nil))
		require.NoError(t, db.Create(&finance.Account{
			UserID: "rich", Currency: "EUR", Amount: math.MaxInt64 - 10, UpdatedAt: time.Now().UTC()}).Error)
		other, overflow, fits, broken := packetClaim(1), packetClaim(2), packetClaim(3), packetClaim(4)
		*other.Amount++
		overflow.UserID, *overflow.Amount = "rich", 11
		fits.UserID, *fits.Amount = "rich", 10
		broken.Currency = "euro"
		good := []event.Event{fits}
		for n := 5; n < 100; n++ {
			good = append(good, packetClaim(n))
		}
		verdicts := handIn(t, books, append([]event.Event{other, broken}, good...)...)
		require.ErrorIs(t, verdicts[0], consumer.ErrPermanent)
		require.ErrorIs(t, verdicts[0], finance.ErrConflict)
		require.ErrorContains(t, verdicts[0], `it credits 1 EUR of campaign rain to "user 1"`)
		require.ErrorIs(t, verdicts[1], consumer.ErrPermanent)
		require.ErrorIs(t, verdicts[1], finance.ErrEvent)
		for i, err := range verdicts[2:] {
			require.NoError(t, err, good[i].ID)
		}
		verdicts = handIn(t, books, overflow, packetClaim(101), packetClaim(102))
		require.ErrorIs(t, verdicts[0], consumer.ErrPermanent, "the account is full")
		require.NoError(t, errors.Join(verdicts[1:]...))
		var rich finance.Account
		require.NoError(t, db.Take(&rich, "user_id = ?", "rich").Error)
		require.Equal(t, int64(math.MaxInt64), rich.Amount)
		var there int64
		require.NoError(t, db.Model(&finance.Entry{}).Where("claim_id IN ?", []string{overflow.ID, broken.ID}).Count(&there).Error)
		require.Zero(t, there)
	})
}

func TestBooks_NeedADatabaseAndALog(t *testing.T) {
	t.Parallel()
	db := &gorm.DB{}
	for field, bad := range map[string]finance.Config{
		"DB": {}, "Logger": {DB: db}, "Interval": {DB: db, Logger: syncertest.Quiet(), Interval: -1},
	} {
		_, err := finance.NewBooks(bad)
		require.ErrorIs(t, err, finance.ErrConfig)
		require.ErrorContains(t, err, field)
	}
}

func TestBooks_CloseAnswersEverybody(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books, err := finance.NewBooks(finance.Config{DB: db, Logger: syncertest.Quiet(), BatchSize: 10})
		require.NoError(t, err)
		var events []event.Event
		for n := range 300 {
			events = append(events, packetClaim(n))
		}
		verdicts := make(chan []error, 1)
		go func() { verdicts <- handIn(t, books, events...) }() //nolint:testifylint // it asserts nothing
		require.Eventually(t, func() bool {
			var n int64
			return db.Model(&finance.Entry{}).Count(&n).Error == nil && n > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, books.Close(t.Context()))
		require.NoError(t, books.Close(t.Context()), "again")
		var booked []event.Event
		for i, err := range <-verdicts {
			if err == nil {
				booked = append(booked, events[i])
			} else {
				require.ErrorIs(t, err, finance.ErrClosed)
			}
		}
		require.Empty(t, faults(t, db, booked), "a yes is an entry, a no is none")
	})
}

func TestBooks_CloseGivesUpInTime(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		blocker := db.Begin()
		require.NoError(t, blocker.Create(&finance.Entry{ClaimID: eventID(1), UserID: "u", CampaignID: "c", Currency: "EUR",
			ClaimedAt: time.Now().UTC(), CreditedAt: time.Now().UTC()}).Error)
		defer func() { require.NoError(t, blocker.Rollback().Error) }()
		books, err := finance.NewBooks(finance.Config{DB: db, Logger: syncertest.Quiet()})
		require.NoError(t, err)
		verdict := make(chan error, 1)
		go func() { verdict <- books.Handle(t.Context(), packetClaim(1), nil) }()
		// usually during the transaction; the outcome is the same if not
		<-time.After(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = books.Close(ctx)
		err = <-verdict
		require.Error(t, err)
		require.NotErrorIs(t, err, consumer.ErrPermanent)
	})
}

// The control of all tests here: faults must find an event credited twice,
// a skipped event, and an account that moved without an entry.
func TestFaults_FindsADoubleCredit(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		events := []event.Event{packetClaim(1), packetClaim(2)}
		naive := func(e event.Event) {
			entry, _, err := finance.EntryOf(&e)
			require.NoError(t, err)
			entry.CreditedAt = entry.ClaimedAt
			db.Create(&entry) // a second one fails unnoticed
			account := finance.Account{UserID: entry.UserID, Currency: entry.Currency, UpdatedAt: entry.ClaimedAt}
			require.NoError(t, db.FirstOrCreate(&account).Error)
			require.NoError(t, db.Model(&account).Where("user_id = ? AND currency = ?", account.UserID, account.Currency).Updates(map[string]any{
				"amount": gorm.Expr("amount + ?", entry.Amount), "entries": gorm.Expr("entries + 1")}).Error)
		}
		naive(events[0])
		require.NotEmpty(t, faults(t, db, events), "an event is missing")
		naive(events[1])
		require.Empty(t, faults(t, db, events))
		naive(events[1])
		found := faults(t, db, events)
		require.Len(t, found, 2)
		require.Equal(t, "account of user 2 holds 4 in 2 entries, due are [2 1]", found[0])
		require.Equal(t, fmt.Sprintf("events %d, entries %d, accounts %d", 3, 3, 5), found[1])
	})
}

// After a restore of Redis a packet may have a second claim. It must be
// paid once: the second event is refused by name, in the first one's batch
// and after it.
func TestBooks_APacketIsPaidOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		books := openBooks(t, finance.Config{DB: db, Interval: 50 * time.Millisecond})
		first, second, other := packetClaim(1), packetClaim(2), packetClaim(3)
		second.PacketID, second.Amount = first.PacketID, first.Amount
		elsewhere := packetClaim(4)
		elsewhere.PacketID, elsewhere.CampaignID = first.PacketID, "sun"
		require.NoError(t, errors.Join(handIn(t, books, first)...))
		verdicts := handIn(t, books, second, other, elsewhere)
		require.ErrorIs(t, verdicts[0], finance.ErrPaid)
		require.ErrorContains(t, verdicts[0], "packet p000001 of campaign rain was credited to \"user 1\" for claim "+first.ID)
		require.ErrorIs(t, verdicts[0], consumer.ErrPermanent)
		require.NoError(t, errors.Join(append(verdicts[1:], handIn(t, books, first)...)...))
		require.Empty(t, faults(t, db, []event.Event{first, other, elsewhere}))

		// in one batch the second is judged later, by what the first left
		third, fourth := packetClaim(5), packetClaim(6)
		fourth.PacketID = third.PacketID
		fifth, sixth := packetClaim(7), packetClaim(7)
		sixth.UserID = "someone else"
		for want, pair := range map[error][]event.Event{finance.ErrPaid: {third, fourth}, finance.ErrConflict: {fifth, sixth}} {
			again := 0
			for i, err := range handIn(t, books, pair...) {
				if err != nil {
					again++
					require.NotErrorIs(t, err, consumer.ErrPermanent, "it comes again")
					require.ErrorIs(t, handIn(t, books, pair[i])[0], want)
				}
			}
			require.Equal(t, 1, again)
		}
		var seqs []int64
		require.NoError(t, db.Raw("SELECT seq FROM account_entries WHERE campaign_id = 'rain' AND claim_id IN (?, ?) ORDER BY seq", first.ID, other.ID).
			Scan(&seqs).Error)
		require.Equal(t, []int64{2, 4}, seqs)
	})
}
