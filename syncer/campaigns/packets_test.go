package campaigns_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/stored"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// requirePackets checks that the n packets of p add up to sum, have
// positions 1 to n, and are in the counters.
func requirePackets(t testing.TB, db *gorm.DB, n, sum int64) []stored.PacketRow {
	t.Helper()
	const id = "p"
	rows := syncertest.PacketsOf(t, db, id)
	require.Len(t, rows, int(n))
	var have int64
	for i := range rows {
		require.EqualValues(t, i+1, rows[i].Position)
		have += rows[i].Amount
	}
	require.Equal(t, sum, have)
	b := syncertest.BooksOf(t, db, id)
	require.Equal(t, []int64{n, n - b.Claimed}, []int64{b.Total, b.Remaining})
	return rows
}

// Lists and splits follow one another. The same request again adds nothing.
func TestPackets_TheSameRequestAgainAddsNothing(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		campaigns := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		syncertest.AddPacketCampaign(t, campaigns, "p")
		syncertest.AddPacketCampaign(t, campaigns, "q")
		keyed := syncertest.SplitOf(10, 100)
		keyed.Key = "night"
		release := time.Date(2027, 1, 1, 8, 0, 0, 123_456_789, time.FixedZone("CST", 8*3600))
		for _, batch := range []models.PacketBatch{syncertest.ReleasedAt(syncertest.ListOf("x", 4), &release), keyed} {
			first, err := campaigns.AddPackets(t.Context(), "p", batch)
			require.NoError(t, err)
			require.False(t, first.Replayed)
			again, err := campaigns.AddPackets(t.Context(), "p", batch)
			require.NoError(t, err)
			require.True(t, again.Replayed)
			again.Replayed = false
			require.Equal(t, first, again)
		}
		listWithKey := syncertest.ReleasedAt(syncertest.ListOf("x", 4), &release)
		listWithKey.Key = "any"
		again, err := campaigns.AddPackets(t.Context(), "p", listWithKey)
		require.NoError(t, err)
		require.True(t, again.Replayed, "a list is known by its content, whatever its key")
		rows := requirePackets(t, db, 14, 110)
		require.Equal(t, []string{"x4", "x3", "x2", "x1", "_00000005"}, []string{rows[0].ID, rows[1].ID, rows[2].ID, rows[3].ID, rows[4].ID})
		require.Equal(t, "2027-01-01T00:00:00.123Z", rows[0].ReleaseAt.UTC().Format(models.TimeLayout))
		require.Nil(t, rows[4].ReleaseAt)

		other := syncertest.SplitOf(10, 101)
		other.Key = "night"
		_, err = campaigns.AddPackets(t.Context(), "p", other)
		require.ErrorIs(t, err, models.ErrKeyMismatch)
		_, err = campaigns.AddPackets(t.Context(), "q", keyed)
		require.NoError(t, err, "a key is the campaign's")
		_, err = campaigns.AddPackets(t.Context(), "p", syncertest.SplitOf(1, 1))
		require.NoError(t, err)
		_, err = campaigns.AddPackets(t.Context(), "p", syncertest.SplitOf(1, 1))
		require.NoError(t, err)
		requirePackets(t, db, 16, 112)

		_, err = campaigns.Change(t.Context(), "p", models.Change{Status: new(models.StatusClosed)})
		require.NoError(t, err)
		again, err = campaigns.AddPackets(t.Context(), "p", keyed)
		require.NoError(t, err)
		require.True(t, again.Replayed, "it was added before the campaign closed")
		_, err = campaigns.AddPackets(t.Context(), "p", syncertest.SplitOf(1, 1))
		require.ErrorIs(t, err, models.ErrClosed)
	})
}

func TestPackets_RefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		campaigns := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		syncertest.AddPacketCampaign(t, campaigns, "p")
		_, _, err := campaigns.Create(t.Context(), syncertest.CampaignOf("coupon", 5))
		require.NoError(t, err)
		at := func(ms int64) *time.Time { return new(time.UnixMilli(ms)) }
		first := syncertest.ListOf("x", 2500) // more than one statement
		_, err = campaigns.AddPackets(t.Context(), "p", first)
		require.NoError(t, err)
		taken := syncertest.ListOf("y", 2500)
		taken.List[2400].ID = "x7"
		for _, refused := range []struct {
			id, field string
			batch     models.PacketBatch
		}{
			{"coupon", "kind", syncertest.SplitOf(1, 1)},
			{"p", "packets[2400].id", taken},
			{"p", "packets[0].id", models.PacketBatch{List: []models.Packet{{ID: "_00000001", Amount: 1}}}},
			{"p", "amount", syncertest.SplitOf(10, 9)},
			{"p", "count", syncertest.SplitOf(math.MaxInt64, 2_000_000)},
			{"p", "amount", syncertest.SplitOf(1, models.AmountMax)}, // together with existing ones
		} {
			_, err := campaigns.AddPackets(t.Context(), refused.id, refused.batch)
			var field *models.FieldError
			require.ErrorAs(t, err, &field, "%s", refused.field)
			require.Equal(t, refused.field, field.Field, field.Reason)
		}
		_, err = campaigns.AddPackets(t.Context(), "none", syncertest.SplitOf(1, 1))
		require.ErrorIs(t, err, models.ErrNotFound)
		requirePackets(t, db, 2500, 2500*2501/2)

		waves := make([]map[string]any, models.WavesMax)
		for i := range waves {
			waves[i] = map[string]any{
				"campaign_id": "p", "first_position": -i, "packets": 0, "amount": 0, "request_key": fmt.Sprint(i), "digest": "x",
				"release_at": at(int64(i) + 1).UTC().Format(sqlstore.TimeLayout), "created_at": "2026-11-21 00:00:00.000",
			}
		}
		require.NoError(t, db.Table("packet_batches").Create(waves).Error)
		late := syncertest.SplitOf(1, 1)
		late.ReleaseAt = at(models.WavesMax + 1)
		_, err = campaigns.AddPackets(t.Context(), "p", late)
		require.ErrorContains(t, err, "release_at: may have 256 values in a campaign")
		late.ReleaseAt = at(5)
		_, err = campaigns.AddPackets(t.Context(), "p", late)
		require.NoError(t, err, "one that is there")
		_, err = campaigns.AddPackets(t.Context(), "p", syncertest.SplitOf(1, 1))
		require.NoError(t, err, "at once is none")

		require.NoError(t, db.Exec("UPDATE lots SET total = ? WHERE id = 'p'", models.PacketsMax).Error)
		_, err = campaigns.AddPackets(t.Context(), "p", syncertest.SplitOf(1, 1))
		require.ErrorContains(t, err, "count: of a campaign may be 10000000")
	})
}

// Concurrent requests get different positions;
// the same request sent many times counts once.
func TestPackets_PostsAtOnceKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		campaigns := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		syncertest.AddPacketCampaign(t, campaigns, "p")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var g errgroup.Group
		for i := range 4 {
			g.Go(func() error {
				for range 3 {
					list := syncertest.ListOf(fmt.Sprintf("%c", 'a'+i%2), 300)
					if err := again(func() (models.AddedPackets, error) { return campaigns.AddPackets(ctx, "p", list) }); err != nil {
						return err
					}
				}
				return again(func() (models.AddedPackets, error) {
					return campaigns.AddPackets(ctx, "p", syncertest.SplitOf(100, 1000))
				})
			})
		}
		require.NoError(t, g.Wait())
		rows := requirePackets(t, db, 2*300+4*100, 2*300*301/2+4*1000)
		ids := make([]string, 0, len(rows))
		for i := range rows {
			ids = append(ids, rows[i].ID)
		}
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), len(rows))
	})
}

// Another process takes the positions, and then adds the same list,
// while this one finds out why it could not.
func TestPackets_AListThatAnotherProcessAddsIsARepeatedOne(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn})
	scripts := syncertest.OpenScripts(t)
	here := syncertest.NewCampaigns(t, db, scripts)
	there := syncertest.NewCampaigns(t, syncertest.OpenStore(t, sqlstore.Config{DSN: dsn}), scripts)
	syncertest.AddPacketCampaign(t, here, "p")
	list := syncertest.ListOf("a", 3)
	addAt := func(query string, add models.PacketBatch) func(tx *gorm.DB) {
		once := false
		return func(tx *gorm.DB) {
			if !once && strings.HasPrefix(tx.Statement.SQL.String(), query) {
				once = true
				_, err := there.AddPackets(t.Context(), "p", add)
				require.NoError(t, err)
			}
		}
	}
	rows := db.Callback().Row()
	require.NoError(t, rows.After("gorm:row").Register("positions", addAt("SELECT COALESCE(MAX(position)", syncertest.SplitOf(1, 1))))
	require.NoError(t, rows.Before("gorm:row").Register("list", addAt("SELECT id FROM packets", list)))
	added, err := here.AddPackets(t.Context(), "p", list)
	require.NoError(t, err)
	require.Equal(t, models.AddedPackets{Count: 3, Amount: 6, Replayed: true}, added)
	requirePackets(t, db, 4, 7)
}

func again(post func() (models.AddedPackets, error)) (err error) {
	for range 20 {
		if _, err = post(); err == nil || !strings.Contains(err.Error(), "another change came first") {
			break
		}
	}
	return err
}
