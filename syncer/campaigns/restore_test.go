package campaigns_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
)

func rowsOf(t *testing.T, h *syncertest.Stack, table, columns string) (rows []map[string]any) {
	t.Helper()
	require.NoError(t, h.DB.Table(table).Select(columns).Order("campaign_id, 2").Find(&rows).Error)
	return rows
}

// MySQL is restored to before campaigns were created or
// changed, and before packets were added. It gets them
// from the claim stream, even those without claims.
func TestRestore_WhatOperatorsDecidedComesBack(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	changed := h.Create(10, nil)
	gift := h.OpenPackets(syncertest.ListOf("a", 5))
	h.Sync()
	dump := syncertest.DumpOf(t, h.DB)

	limit := models.Limits{{By: models.ByUser, Per: models.PerHour, Max: 2}}
	_, err := repo.Change(t.Context(), changed, models.Change{Name: new("Gala"), Total: new(int64(25)), Limits: &limit})
	require.NoError(t, err)
	created := []models.Campaign{
		syncertest.CampaignOf(testenv.UniqueID(t, "idle"), 7), syncertest.CampaignOf(testenv.UniqueID(t, "wide"), 100),
		syncertest.CampaignOf(testenv.UniqueID(t, "red"), 0), syncertest.CampaignOf(testenv.UniqueID(t, "reds"), 0),
	}
	created[1].Shards = 3
	created[3].Shards = 2
	for i := range created {
		c := &created[i]
		if c.Total == 0 {
			c.Kind, c.Currency, c.SenderID = models.KindPacket, "CNY", "boss"
		}
		_, isNew, err := repo.Create(t.Context(), *c)
		require.NoError(t, err)
		require.True(t, isNew)
	}
	split := models.PacketBatch{Split: &models.Split{Count: 1200, Amount: 5000, Method: "even"}, Key: "k"}
	later := syncertest.ReleasedAt(syncertest.ListOf("b", 30), syncertest.InAnHour())
	for _, id := range []string{gift, created[2].ID, created[3].ID} {
		h.AddPackets(id, split)
		h.AddPackets(id, later)
	}
	require.NoError(t, h.Maintainer().Attend(t.Context()))
	h.Sync()
	require.Len(t, h.Take(gift, syncertest.Asks("u", 8)...), 8, "some of the old packets, some of the new ones")
	h.Take(changed, syncertest.Asks("u", 20)...)
	tables := map[string]string{
		"definitions": "*", "packet_batches": "*", "packets": "campaign_id, position, id, shard, amount, user_id, claim_id, release_at",
		"lots": "campaign_id, shard, total, claimed, sold, told_position, untold, partition_no", "claims": "campaign_id, id, packet_id",
	}
	before := make(map[string][]map[string]any)
	for table, columns := range tables {
		before[table] = rowsOf(t, h, table, columns)
	}

	require.NoError(t, dump.Restore(h.DB))
	_, err = repo.Get(t.Context(), created[0].ID)
	require.ErrorIs(t, err, models.ErrNotFound)
	h.Sync()
	for table, columns := range tables {
		after := rowsOf(t, h, table, columns)
		require.Len(t, after, len(before[table]), table)
		for i := range after {
			require.Equal(t, before[table][i], after[i], table)
		}
	}
	require.Empty(t, syncertest.ParkedIDs(t, h.DB))
	for _, c := range created {
		_, isNew, err := repo.Create(t.Context(), c)
		require.NoError(t, err)
		require.False(t, isNew, "it is the one that was created")
	}
	again, err := repo.AddPackets(t.Context(), gift, split)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.NoError(t, h.Load(created[0].ID))
	h.Sync()
	require.Len(t, h.Take(created[0].ID, syncertest.Asks("v", 7)...), 7)
	for _, id := range []string{changed, gift, created[0].ID} {
		require.Empty(t, h.Compare(id).Differences, id)
	}
}

// If a process knows that MySQL had more, it changes nothing until the
// restored MySQL has read on.
func TestRestore_NothingIsChangedBefore(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	repo := syncertest.NewCampaigns(t, h.DB, h.Scripts)
	gift := h.OpenPackets(syncertest.ListOf("a", 5))
	h.Sync()
	dump := syncertest.DumpOf(t, h.DB)
	h.AddPackets(gift, syncertest.ListOf("b", 5))
	h.Sync()
	_, err := repo.Change(t.Context(), gift, models.Change{Name: new("Gala")})
	require.NoError(t, err)
	require.NoError(t, dump.Restore(h.DB))
	_, err = repo.AddPackets(t.Context(), gift, syncertest.ListOf("c", 5))
	require.ErrorIs(t, err, models.ErrBehind)
	_, err = repo.Change(t.Context(), gift, models.Change{Name: new("Fete")})
	require.ErrorIs(t, err, models.ErrBehind)
	h.Sync()
	require.Equal(t, "Gala", h.Campaign(gift).Name)
	_, err = repo.AddPackets(t.Context(), gift, syncertest.ListOf("c", 5))
	require.NoError(t, err)
	h.Sync()
	require.EqualValues(t, 15, h.Campaign(gift).Total)
}
