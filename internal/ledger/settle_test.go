package ledger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/finance"
	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/calendar"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/parking"
	"dibs/syncer/tables"
	"dibs/syncer/writer"
)

// day is a settlement test's fixture: a packet campaign of two
// shards, its rows and the finance service's entries.
type day struct {
	t      *testing.T
	db     *gorm.DB
	id     string
	writer *writer.Writer
	books  *finance.Books
	seq    [3]int64
	spent  int
}

func newDay(t *testing.T, db *gorm.DB) *day {
	t.Helper()
	c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 0)
	c.Kind, c.Shards, c.Currency, c.PerUser, c.SenderID = models.KindPacket, 2, "EUR", 1, "boss"
	_, _, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, db.Exec("UPDATE definitions SET created_at = '2026-01-01' WHERE campaign_id = ?", c.ID).Error)
	books, err := finance.NewBooks(finance.Config{DB: db, Logger: syncertest.Quiet()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = books.Close(t.Context()) })
	return &day{t: t, db: db, id: c.ID, writer: syncertest.StartWriter(t, writer.Config{DB: db}), books: books}
}

// recorded sets the time up to which the streams are complete.
func (d *day) recorded(at string) {
	d.t.Helper()
	require.NoError(d.t, d.db.Exec("DELETE FROM streams").Error)
	for p := range syncertest.Partitions {
		require.NoError(d.t, d.db.Exec("INSERT INTO streams (partition_no, complete_at) VALUES (?, ?)", p, at).Error)
	}
}

func (d *day) event(shard int, at string, amount int64) event.Event {
	d.t.Helper()
	when, err := time.Parse(time.RFC3339Nano, at)
	require.NoError(d.t, err)
	d.seq[shard]++
	d.spent++
	packet := fmt.Sprint("p", d.spent)
	row := stored.PacketRow{CampaignID: d.id, ID: packet, Position: int64(d.spent), Amount: amount, CreatedAt: when}
	require.NoError(d.t, d.db.Create(&row).Error)
	return event.Event{
		V: event.Version, Type: event.ClaimAccepted, ID: uuid.Must(uuid.NewV7()).String(), CampaignID: d.id, Shard: shard,
		UserID: "u-" + packet, Quantity: 1, Epoch: 1, Seq: d.seq[shard], At: models.NewTime(when), PacketID: packet, Amount: &amount, Currency: "EUR",
	}
}

func (d *day) claim(shard int, at string, amount int64) {
	d.t.Helper()
	e := d.event(shard, at, amount)
	require.NoError(d.t, syncertest.Submit(d.t.Context(), d.writer, e))
	require.NoError(d.t, d.books.Handle(d.t.Context(), e, nil))
}

func (d *day) park(e event.Event) {
	d.t.Helper()
	payload, err := json.Marshal(e)
	require.NoError(d.t, err)
	row := parking.Row(&event.Raw{Event: e, Payload: payload}, "a test")
	require.NoError(d.t, parking.Put(d.db, &row, sqlstore.Now()))
}

// decide records a decision in the ledger and the accounts.
func (d *day) decide(e event.Event, at string) {
	d.t.Helper()
	d.decideIn("EUR", e, at)
}

func (d *day) decideIn(currency string, e event.Event, at string) {
	d.t.Helper()
	when, err := time.Parse(time.RFC3339Nano, at)
	require.NoError(d.t, err)
	e.V, e.ID, e.CampaignID, e.At, e.Currency = event.Version, uuid.Must(uuid.NewV7()).String(), d.id, models.NewTime(when), currency
	require.NoError(d.t, d.db.WithContext(d.t.Context()).Transaction(func(tx *gorm.DB) error {
		return ledger.Put(d.t.Context(), tx, []event.Event{e})
	}))
	require.NoError(d.t, d.books.Handle(d.t.Context(), e, nil))
}

// settle settles a day, and checks it against the ledger and account_entries.
func (d *day) settle(date, zone string) event.Settlement {
	d.t.Helper()
	place, err := calendar.LoadZone(zone)
	require.NoError(d.t, err)
	on, err := calendar.ParseDay(date, place)
	require.NoError(d.t, err)
	reader := ledger.New(d.db)
	s, err := reader.Settle(d.t.Context(), on)
	require.NoError(d.t, err)
	have := map[event.Type]int64{}
	for _, sum := range s.Sums {
		require.Equal(d.t, "EUR", sum.Currency)
		have[sum.Type] += sum.Amount
	}
	events, _, err := reader.Page(d.t.Context(), d.id, event.Place{}, 1000)
	require.NoError(d.t, err)
	want := map[event.Type]int64{}
	for i := range events {
		if e := &events[i]; !e.At.Before(s.From.Time) && e.At.Before(s.To.Time) {
			want[e.Type] += *e.Amount
		}
	}
	if !s.Final {
		return s
	}
	require.Equal(d.t, want, have)
	var credited int64
	require.NoError(d.t, d.db.Raw("SELECT COALESCE(SUM(amount), 0) FROM account_entries WHERE campaign_id = ? AND claimed_at >= ? AND claimed_at < ?",
		d.id, s.From.Time, s.To.Time).Scan(&credited).Error)
	require.Equal(d.t, credited, have[event.ClaimAccepted]+have[event.CampaignClosed]-have[event.ClaimsGivenUp])
	return s
}

func (d *day) sums(s event.Settlement) (all []string) {
	for _, sum := range s.Sums {
		require.Equal(d.t, d.id, sum.CampaignID)
		all = append(all, fmt.Sprint(sum.Type, " ", sum.Claims, " ", sum.Units, " ", sum.Amount))
	}
	return all
}

func TestSettle_AddsUpOneDayToTheCent(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		d := newDay(t, db)
		d.claim(1, "2026-10-24T21:59:59.999Z", 1_00) // before midnight in Berlin
		d.claim(1, "2026-10-24T22:00:00.000Z", 2_01)
		d.claim(2, "2026-10-24T22:00:00.000Z", 4_02)
		d.claim(2, "2026-10-25T00:30:00.000Z", 8_03) // 02:30, the first time
		d.claim(1, "2026-10-25T01:30:00.000Z", 16_04)
		given := d.event(1, "2026-10-25T12:00:00.000Z", 32_05)
		require.NoError(t, d.books.Handle(t.Context(), given, nil))
		d.park(given)
		d.claim(2, "2026-10-25T22:59:59.999Z", 64_06) // the day has 25 hours
		d.claim(2, "2026-10-25T23:00:00.000Z", 128_07)

		d.recorded("2026-10-26 06:00:00.000")
		s := d.settle("2026-10-25", "Europe/Berlin")
		require.False(t, s.Final)
		require.Equal(t, []event.SettlementMissing{{CampaignID: d.id, Reason: "parked claims wait for a decision: see dibs reconcile"}}, s.Missing)

		require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = parked_at").Error)
		require.NoError(t, db.Exec("UPDATE lots SET given_up_claims = 1 WHERE id = ?", models.ShardID(d.id, 1)).Error)
		d.decide(event.Event{Type: event.ClaimsGivenUp, Shard: 1, IDs: []string{given.ID}, Quantity: 1, Amount: new(int64(32_05))}, "2026-10-25T13:00:00Z")
		d.decide(event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(7_77))}, "2026-10-25T22:00:00Z")
		s = d.settle("2026-10-25", "Europe/Berlin")
		require.True(t, s.Final, "%v", s.Missing)
		require.Equal(t, 25*time.Hour, s.To.Sub(s.From.Time))
		require.Equal(t, []string{"campaign.closed 0 0 777", "claim.accepted 6 6 12621", "claims.given_up 1 1 3205"}, d.sums(s))
		require.Equal(t, []string{"claim.accepted 1 1 100"}, d.sums(d.settle("2026-10-24", "Europe/Berlin")))
		require.NoError(t, db.Exec("UPDATE definitions SET closed_told_at = created_at WHERE campaign_id = ?", d.id).Error) // with the archive
		for _, upto := range []int{2, 100, 0} {                                                                             // as after a rollback of Redis
			require.NoError(t, db.Exec("UPDATE lots SET unordered_upto = ? WHERE campaign_id = ?", upto, d.id).Error)
			require.Equal(t, s.Sums, d.settle("2026-10-25", "Europe/Berlin").Sums, upto)
		}

		d.recorded("2026-10-25 22:59:59.999")
		s = d.settle("2026-10-25", "Europe/Berlin")
		require.False(t, s.Final)
		require.Equal(t, []event.SettlementMissing{{CampaignID: d.id, Reason: "booked up to 2026-10-25T22:59:59.999Z"}}, s.Missing)
		d.claim(1, "2026-10-25T23:00:00.000Z", 1)
		require.True(t, d.settle("2026-10-25", "Europe/Berlin").Final, "each shard has a later row, and no seq is missing")

		require.NoError(t, db.Exec("DELETE FROM claims WHERE campaign_id = ? AND shard = 2 AND seq = 1", d.id).Error)
		require.NoError(t, db.Exec("UPDATE lots SET synced_seq = synced_seq - 1 WHERE campaign_id = ? AND shard = 2", d.id).Error)
		s = d.settle("2026-10-25", "UTC")
		require.False(t, s.Final, "a claim may be on its way")
	})
}

// It was closed, and what was left went back to its sender, before it was
// deleted. Finance has that credit.
func TestSettle_ADeletedCampaignKeepsItsReturns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		d := newDay(t, db)
		d.decide(event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(7_77))}, "2026-10-25T22:00:00Z")
		d.recorded("2026-10-27 00:00:00.000")
		day, err := calendar.ParseDay("2026-10-25", time.UTC)
		require.NoError(t, err)
		before, err := ledger.New(db).Settle(t.Context(), day)
		require.NoError(t, err)
		require.True(t, before.Final)
		require.Equal(t, []string{"campaign.closed 0 0 777"}, d.sums(before))
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			isBlank, err := tables.DeleteBlank(tx, d.id)
			require.True(t, isBlank)
			return err
		}))
		for _, kind := range []models.Kind{"", models.KindCoupon} { // without a later one of its id, and with it
			if kind != "" {
				syncertest.AddCampaign(t, db, d.id, 3)
			}
			after, err := ledger.New(db).Settle(t.Context(), day)
			require.NoError(t, err)
			require.True(t, after.Final)
			require.Equal(t, before.Sums, after.Sums)
		}
	})
}

// Finance has the first one's return in the first one's currency.
func TestSettle_ACampaignCreatedAgainKeepsTheCurrencyOfTheFirst(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		d := newDay(t, db)
		d.decide(event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(7_77))}, "2026-10-25T12:00:00Z")
		require.NoError(t, db.Exec("UPDATE definitions SET currency = 'JPY' WHERE campaign_id = ?", d.id).Error)
		d.decideIn("JPY", event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(5))}, "2026-10-25T13:00:00Z")
		d.decide(event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(2_23))}, "2026-10-25T14:00:00Z")
		d.recorded("2026-10-27 00:00:00.000")
		day, err := calendar.ParseDay("2026-10-25", time.UTC)
		require.NoError(t, err)
		s, err := ledger.New(db).Settle(t.Context(), day)
		require.NoError(t, err)
		require.Equal(t, []event.SettlementSum{
			{CampaignID: d.id, Currency: "EUR", Type: event.CampaignClosed, Amount: 10_00},
			{CampaignID: d.id, Currency: "JPY", Type: event.CampaignClosed, Amount: 5},
		}, s.Sums)
	})
}

// Otherwise a proxy that limits results would silently falsify sums.
func TestRowsThatAreCutOffMakeNoSumWrong(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	cut := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn, Conns: 1})
	other := newDay(t, db)
	other.claim(1, "2026-10-25T12:00:00Z", 9_00)
	d := newDay(t, db)
	for i := range 7 {
		d.claim(1+i%2, fmt.Sprintf("2026-10-25T0%d:00:00Z", i), int64(1)<<i)
	}
	given := d.event(1, "2026-10-25T12:00:00Z", 1_000)
	d.park(given)
	require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = parked_at").Error)
	require.NoError(t, db.Exec("UPDATE lots SET given_up_claims = 1 WHERE id = ?", models.ShardID(d.id, 1)).Error)
	lost := event.Event{Type: event.ClaimsGivenUp, Shard: 1, IDs: []string{given.ID}, Quantity: 1, Amount: new(int64(1_000))}
	d.decide(lost, "2026-10-25T13:00:00Z")
	d.decide(event.Event{Type: event.CampaignClosed, UserID: "boss", Amount: new(int64(7_77))}, "2026-10-25T22:00:00Z")
	d.recorded("2026-10-27 00:00:00.000")

	day, err := calendar.ParseDay("2026-10-25", time.UTC)
	require.NoError(t, err)
	whole, err := ledger.New(db).Settle(t.Context(), day)
	require.NoError(t, err)
	require.True(t, whole.Final, "%v", whole.Missing)
	require.Len(t, whole.Sums, 4)
	events, _, err := ledger.New(db).Page(t.Context(), d.id, event.Place{}, 100)
	require.NoError(t, err)
	require.Len(t, events, 10)

	agreed := 0
	for most := 1; most <= 11; most++ {
		require.NoError(t, cut.Exec("SET SESSION sql_select_limit = ?", most).Error)
		reader := ledger.New(cut)
		got, err := reader.Settle(t.Context(), day)
		if err == nil {
			require.Equal(t, whole.Sums, got.Sums, most)
			agreed++
		} else {
			require.ErrorIs(t, err, sqlstore.ErrShort, "%d rows", most)
		}
		page, upto, err := reader.Page(t.Context(), d.id, event.Place{}, 100)
		if err == nil {
			require.Equal(t, strings.Join(idsOf(events[:len(page)]), " "), strings.Join(idsOf(page), " "), most)
			require.True(t, len(page) == len(events) || !upto.After(events[len(page)].At.Time), "%d rows: the page says that it has all", most)
		} else {
			require.ErrorIs(t, err, sqlstore.ErrShort, "%d rows", most)
		}
	}
	require.Positive(t, agreed)
}

func idsOf(events []event.Event) (ids []string) {
	for i := range events {
		ids = append(ids, events[i].ID)
	}
	return ids
}
