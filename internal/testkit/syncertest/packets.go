package syncertest

import (
	"fmt"
	"testing"
	"time"

	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/campaigns"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// OpenPackets makes a packet campaign, loads it into Redis and adds batches.
func (h *Stack) OpenPackets(batches ...models.PacketBatch) string {
	h.T.Helper()
	id := h.Create(0, func(c *models.Campaign) {
		c.Kind = models.KindPacket
		c.PerUser = 1
		c.Currency = "CNY"
		c.SenderID = "boss"
	})
	for _, batch := range batches {
		h.AddPackets(id, batch)
	}
	return id
}

// AddPackets adds a batch to a packet campaign.
func (h *Stack) AddPackets(id string, batch models.PacketBatch) {
	h.T.Helper()
	_, err := NewCampaigns(h.T, h.DB, h.Scripts).AddPackets(h.T.Context(), id, batch)
	require.NoError(h.T, err)
}

// InLists counts the packets of a campaign in Redis.
func (h *Stack) InLists(id string) (n int64) {
	h.T.Helper()
	for _, list := range h.Redis.ZRange(h.T.Context(), h.Keys(id).Waves, 0, -1).Val() {
		n += h.Redis.LLen(h.T.Context(), list).Val()
	}
	return n
}

// InAnHour is a release time that no test reaches.
func InAnHour() *time.Time { return new(time.Now().Add(time.Hour)) }

// ReleasedAt returns a batch with a release time.
func ReleasedAt(batch models.PacketBatch, at *time.Time) models.PacketBatch {
	batch.ReleaseAt = at
	return batch
}

// ListOf returns n packets of 1, 2, 3 … minor units.
func ListOf(prefix string, n int) models.PacketBatch {
	var b models.PacketBatch
	for i := range n {
		// not in order of ids
		b.List = append(b.List, models.Packet{ID: fmt.Sprintf("%s%d", prefix, n-i), Amount: int64(i) + 1})
	}
	return b
}

// SplitOf splits an amount, in minor units, into count packets.
func SplitOf(count, amount int64) models.PacketBatch {
	return models.PacketBatch{Split: &models.Split{Count: count, Amount: amount, Method: "double_mean"}}
}

// PacketsOf returns a campaign's packet rows by position.
func PacketsOf(t testing.TB, db *gorm.DB, id string) []stored.PacketRow {
	t.Helper()
	var rows []stored.PacketRow
	require.NoError(t, db.Where("campaign_id = ?", id).Order("position").Find(&rows).Error)
	return rows
}

// AddPacketCampaign stores a packet campaign without packets.
func AddPacketCampaign(t testing.TB, campaigns *campaigns.Repository, id string) {
	t.Helper()
	c := CampaignOf(id, 0)
	c.Kind = models.KindPacket
	c.PerUser = 1
	c.Currency = "CNY"
	c.SenderID = "boss"
	_, _, err := campaigns.Create(t.Context(), c)
	require.NoError(t, err)
}

// AddPacket inserts a packet without an owner, at position 1.
func AddPacket(t testing.TB, db *gorm.DB, campaignID, id string, amount int64) {
	t.Helper()
	packet := stored.PacketRow{CampaignID: campaignID, ID: id, Position: 1, Amount: amount, CreatedAt: time.Now().UTC()}
	require.NoError(t, db.Create(&packet).Error)
}
