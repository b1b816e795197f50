package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/parking"

	"github.com/stretchr/testify/require"
)

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
	given := make([]models.Event, 2)
	for i := range given {
		given[i] = d.event(1, "2026-10-25T12:00:00Z", 1_000)
		payload := fmt.Sprintf(`{"v":1,"type":"claim.accepted","id":%q,"campaign_id":%q,"shard":1,"user_id":%q,"quantity":1,"seq":%d,`+
			`"at":"2026-10-25T12:00:00.000Z","packet_id":%q,"amount":1000,"currency":"EUR"}`, given[i].ID, d.id, given[i].UserID, given[i].Seq, given[i].PacketID)
		row := parking.Row(&models.RawEvent{Event: given[i], Payload: []byte(payload)}, "a test")
		require.NoError(t, parking.Put(db, &row, sqlstore.Now()))
	}
	require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = parked_at").Error)
	require.NoError(t, db.Exec("UPDATE lots SET given_up_claims = 2 WHERE id = ?", models.ShardID(d.id, 1)).Error)
	ids := []string{given[0].ID, given[1].ID}
	d.decide(models.Event{Type: models.EventClaimsGivenUp, Shard: 1, IDs: ids, Quantity: 2, Amount: new(int64(2_000))}, "2026-10-25T13:00:00Z")
	d.decide(models.Event{Type: models.EventCampaignClosed, UserID: "boss", Amount: new(int64(7_77))}, "2026-10-25T22:00:00Z")
	d.recorded("2026-10-27 00:00:00.000")

	day, err := models.ParseDay("2026-10-25", time.UTC)
	require.NoError(t, err)
	whole, err := ledger.New(db).Settle(t.Context(), day)
	require.NoError(t, err)
	require.True(t, whole.Final, "%v", whole.Missing)
	require.Len(t, whole.Sums, 4)
	events, _, err := ledger.New(db).Page(t.Context(), d.id, models.LedgerPlace{}, 100)
	require.NoError(t, err)
	require.Len(t, events, 11)

	agreed := 0
	for most := 1; most <= 12; most++ {
		require.NoError(t, cut.Exec("SET SESSION sql_select_limit = ?", most).Error)
		reader := ledger.New(cut)
		got, err := reader.Settle(t.Context(), day)
		if err == nil {
			require.Equal(t, whole.Sums, got.Sums, most)
			agreed++
		} else {
			require.ErrorIs(t, err, sqlstore.ErrShort, "%d rows", most)
		}
		page, upto, err := reader.Page(t.Context(), d.id, models.LedgerPlace{}, 100)
		if err == nil {
			require.Equal(t, strings.Join(idsOf(events[:len(page)]), " "), strings.Join(idsOf(page), " "), most)
			require.True(t, len(page) == len(events) || !upto.After(events[len(page)].At.Time), "%d rows: the page says that it has all", most)
		} else {
			require.ErrorIs(t, err, sqlstore.ErrShort, "%d rows", most)
		}
	}
	require.Positive(t, agreed)
}

func idsOf(events []models.Event) (ids []string) {
	for i := range events {
		ids = append(ids, events[i].ID)
	}
	return ids
}
