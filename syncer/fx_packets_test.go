package syncer_test

import (
	"context"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// openPackets makes a packet campaign, brings it into Redis and adds batches to it.
func (h *house) openPackets(batches ...models.PacketBatch) string {
	h.t.Helper()
	id := h.open(0, func(c *models.Campaign) {
		c.Kind, c.PerUser, c.Currency, c.SenderID = models.KindPacket, 1, "CNY", "boss"
	})
	for _, batch := range batches {
		h.addPackets(id, batch)
	}
	return id
}

func (h *house) addPackets(id string, batch models.PacketBatch) {
	h.t.Helper()
	_, err := newCampaigns(h.t, h.db, h.scripts).AddPackets(h.t.Context(), id, batch)
	require.NoError(h.t, err)
}

// requireOwners checks that packets, claims, events and Redis say the same: each packet taken has one owner, by one claim, whose
// event told its amount; what is not taken is in Redis; and that so many were taken.
func (h *house) requireOwners(id string, taken int) {
	h.t.Helper()
	h.requireBooks(id, int64(taken))
	owners := map[string]string{}
	var sum, left int64
	for _, p := range packetsOf(h.t, h.db, id) {
		if sum += p.Amount; p.ClaimID == nil {
			left++
			require.Nil(h.t, p.UserID)
			continue
		}
		owners[*p.ClaimID] = fmt.Sprint(p.ID, ":", p.Amount, ":", *p.UserID)
	}
	require.Len(h.t, owners, taken)
	var claims []models.ClaimRow
	require.NoError(h.t, h.db.Where("campaign_id = ?", id).Find(&claims).Error)
	require.Len(h.t, claims, taken)
	for i := range claims {
		c := &claims[i]
		require.Equal(h.t, fmt.Sprint(*c.PacketID, ":", *c.Amount, ":", c.UserID), owners[c.ID])
	}
	require.Equal(h.t, left, h.inLists(id), "packets that nobody took are in redis")
	require.Empty(h.t, parkedIDs(h.t, h.db))
}

// inLists counts the packets in Redis.
func (h *house) inLists(id string) (n int64) {
	h.t.Helper()
	for _, list := range h.rdb.ZRange(h.t.Context(), lua.KeysOf(id, 0).Waves, 0, -1).Val() {
		n += h.rdb.LLen(h.t.Context(), list).Val()
	}
	return n
}

// inAnHour is a time of release that does not come within a test.
func inAnHour() *time.Time { return new(time.Now().Add(time.Hour)) }

func releasedAt(batch models.PacketBatch, at *time.Time) models.PacketBatch {
	batch.ReleaseAt = at
	return batch
}

// listOf are n packets of 1, 2, 3 … minor units.
func listOf(prefix string, n int) models.PacketBatch {
	var b models.PacketBatch
	for i := range n {
		b.List = append(b.List, models.Packet{ID: fmt.Sprintf("%s%d", prefix, n-i), Amount: int64(i) + 1}) // not in order of ids
	}
	return b
}

func splitOf(count, amount int64) models.PacketBatch {
	return models.PacketBatch{Split: &models.Split{Count: count, Amount: amount, Method: "double_mean"}}
}

// packetsOf are the rows of a campaign's packets, by position.
func packetsOf(t testing.TB, db *gorm.DB, id string) []models.PacketRow {
	t.Helper()
	var rows []models.PacketRow
	require.NoError(t, db.Where("campaign_id = ?", id).Order("position").Find(&rows).Error)
	return rows
}

// addPacketCampaign stores a packet campaign without packets.
func addPacketCampaign(t testing.TB, campaigns *syncer.Campaigns, id string) {
	t.Helper()
	c := campaignOf(id, 0)
	c.Kind, c.PerUser, c.Currency, c.SenderID = models.KindPacket, 1, "CNY", "boss"
	_, _, err := campaigns.Create(t.Context(), c)
	require.NoError(t, err)
}

// addPacket stores a packet that nobody has taken.
func addPacket(t testing.TB, db *gorm.DB, campaignID, id string, amount int64) {
	t.Helper()
	packet := models.PacketRow{CampaignID: campaignID, ID: id, Position: 1, Amount: amount, CreatedAt: time.Now().UTC()}
	require.NoError(t, db.Create(&packet).Error)
}

// pushFails is a Redis that can't be told of packets.
type pushFails struct{ *lua.Scripts }

func (*pushFails) Push(_ context.Context, id string, _ *lua.Push) (int64, error) {
	return 0, fmt.Errorf("%w: %s", lua.ErrUnavailable, id)
}
