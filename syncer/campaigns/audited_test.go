package campaigns_test

import (
	"context"
	"testing"
	"time"

	"dibs/internal/audit"
	"dibs/internal/caller"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/models"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestAudit_EveryChangeSaysWhoMadeItAndWhatWasThere(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		started := time.Now().Add(-time.Second)
		repo, _, id := syncertest.Live(t, db, 100)
		log := audit.NewLog(db)
		by := func(actor, request string) context.Context {
			return caller.With(t.Context(), &caller.Caller{Actor: actor, RequestID: request})
		}
		_, err := repo.Change(by("ann", "r1"), id, models.Change{Total: new(int64(1_000_000_000_001)), Status: new(models.StatusPaused)})
		require.Error(t, err, "too many")
		for _, change := range []models.Change{{Total: new(int64(150)), Status: new(models.StatusPaused)}, {Total: new(int64(150))}} {
			_, err = repo.Change(by("ann", "r1"), id, change)
			require.NoError(t, err)
		}
		_, err = repo.Change(by("bob", "r2"), id, models.Change{Status: new(models.StatusClosed)})
		require.NoError(t, err)
		rain := syncertest.CampaignOf("rain", 0)
		rain.Kind, rain.Currency = models.KindPacket, "CNY"
		for range 2 {
			_, _, err = repo.Create(by("cid", "r3"), rain)
			require.NoError(t, err)
			_, err = repo.AddPackets(by("cid", "r4"), "rain", models.PacketBatch{
				Key: "k", Split: &models.Split{Count: 3, Amount: 300, Method: "even"},
			})
			require.NoError(t, err)
		}

		all, err := log.List(t.Context(), models.AuditQuery{Since: started, Limit: 100})
		require.NoError(t, err)
		require.Len(t, all, 5, "what changed nothing is not there")
		for i, want := range []struct{ actor, request, action, campaign, before, after string }{
			{"cid", "r4", "packets.added", "rain", `{"total":0}`, `{"total":3,"count":3,"amount":300}`},
			{"cid", "r3", "campaign.created", "rain", "", `{"kind":"packet","status":"open","total":0,"time_zone":"UTC",` +
				`"currency":"CNY","version":1}`},
			{"bob", "r2", "campaign.closed", id, `{"status":"paused","version":2}`, `{"status":"closed","version":3}`},
			{"ann", "r1", "campaign.changed", id, `{"status":"open","total":100,"version":1}`, `{"status":"paused","total":150,"version":2}`},
		} {
			e := all[i]
			require.Equal(t, []string{want.actor, want.request, want.action, want.campaign}, []string{e.Actor, e.RequestID, e.Action, e.CampaignID})
			if want.before == "" {
				require.Nil(t, e.Before)
			} else {
				require.JSONEq(t, want.before, string(e.Before))
			}
			require.JSONEq(t, want.after, string(e.After))
		}
		require.NoError(t, db.Exec("INSERT INTO audit_log (id, at, actor, request_id, action) VALUES ('forged', ?, 'eve', '', 'forged')",
			started.Add(-time.Hour).UTC().Format(sqlstore.TimeLayout)).Error)
		_, err = log.List(t.Context(), models.AuditQuery{Before: "gone", Limit: 3})
		require.ErrorIs(t, err, models.ErrID, "or a restored log seems to end there")
		older, err := log.List(t.Context(), models.AuditQuery{Before: all[3].ID, Limit: 3})
		require.NoError(t, err)
		require.Len(t, older, 2)
		require.Equal(t, []string{all[4].ID, "forged"}, []string{older[0].ID, older[1].ID}, "by time, whatever the ids are")
	})
}

func TestAudit_NoChangeWithoutItsEntry(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, _, id := syncertest.Live(t, db, 100)
		rain := syncertest.CampaignOf("rain", 0)
		rain.Kind, rain.Currency = models.KindPacket, "CNY"
		_, _, err := repo.Create(t.Context(), rain)
		require.NoError(t, err)
		require.NoError(t, db.Exec("ALTER TABLE audit_log RENAME TO audit_away").Error)
		_, err = repo.Change(t.Context(), id, models.Change{Total: new(int64(7))})
		require.Error(t, err)
		_, _, err = repo.Create(t.Context(), syncertest.CampaignOf("other", 5))
		require.Error(t, err)
		_, err = repo.AddPackets(t.Context(), "rain", models.PacketBatch{Key: "k", Split: &models.Split{Count: 3, Amount: 300, Method: "even"}})
		require.Error(t, err)

		c, err := repo.Get(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 100, c.Total)
		_, err = repo.Get(t.Context(), "other")
		require.ErrorIs(t, err, models.ErrNotFound)
		c, err = repo.Get(t.Context(), "rain")
		require.NoError(t, err)
		require.Zero(t, c.Total)
		var packets int64
		require.NoError(t, db.Raw("SELECT COUNT(*) FROM packets WHERE campaign_id = 'rain'").Scan(&packets).Error)
		require.Zero(t, packets)
	})
}
