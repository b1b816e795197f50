package resolve

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// never is later than any hold ends. In MySQL it is NULL.
const never int64 = math.MaxInt64

// heldCampaign is a campaign with a hold that may have ended, as it was when it was read.
type heldCampaign struct {
	Place heldPlace `gorm:"embedded"`

	ID        string
	HoldForMs int64
	SyncedSeq int64 // changes with each flush
	LastSeq   int64 // of its claims
}

// heldPlace is where the open holds of a campaign are; see the columns of campaigns.
type heldPlace struct{ NextDueMs, SettledSeq, HoldsMixed int64 }

// openHold is a claim that may expire.
type openHold struct {
	ID, CampaignID string
	Shard          int
	Seq            int64
	ClaimedAt      time.Time
	DueMs          int64 `gorm:"-"`
}

// selectDue reads one of the tables of books. A campaign whose redeems were lost with a MySQL that was put back waits until it has them
// again.
func selectDue(table string) string {
	place := "campaign_id = campaigns.id AND shard = 0"
	if table != "campaigns" {
		place = "claims.campaign_id = campaign_shards.campaign_id AND claims.shard = campaign_shards.shard"
	}
	return "SELECT id, hold_for_ms, synced_seq, next_due_ms, settled_seq, holds_mixed," +
		" COALESCE((SELECT seq FROM claims WHERE " + place + " ORDER BY seq DESC LIMIT 1), 0) AS last_seq" +
		" FROM " + table + " WHERE residency_reason NOT LIKE '" + campaigns.MySQLWentBack + "%'" +
		" AND next_due_ms >= ? AND next_due_ms <= ? AND (next_due_ms > ? OR id > ?)" +
		" ORDER BY next_due_ms, id LIMIT ?"
}

// due reads the campaigns, or the shards, behind last in which a hold may have ended, by the index and in its order.
func (e *Expirer) due(ctx context.Context, table string, now time.Time, last *heldCampaign, size int) (page []heldCampaign, err error) {
	from := last.Place.NextDueMs
	if last.ID == "" {
		from = math.MinInt64
	}
	err = e.relay.db.WithContext(ctx).Raw(selectDue(table), from, now.UnixMilli(), from, last.ID, size).Scan(&page).Error
	return page, err
}

// lookQuery finds the first open holds of each campaign of a page in its reach, up to share of each, in order of their places.
func lookQuery(dialect string, page []heldCampaign, reach int64, share int) (query string, args []any) {
	byPlace := sqlstore.ByIndex(dialect, "claims_place")
	parts := make([]string, len(page))
	for i := range page {
		c := &page[i]
		parts[i] = fmt.Sprintf("SELECT campaign_id, shard, id, seq, claimed_at"+
			" FROM (SELECT campaign_id, shard, id, seq, claimed_at FROM claims%s"+
			" WHERE campaign_id = ? AND shard = ? AND seq > ? AND seq <= ? AND status = ? ORDER BY seq LIMIT ?) AS c%d", byPlace, i)
		campaignID, shard := models.SplitShardID(c.ID)
		args = append(args, campaignID, shard, c.Place.SettledSeq, c.Place.SettledSeq+reach, models.ClaimClaimed, share)
	}
	return strings.Join(parts, " UNION ALL "), args
}

// look finds open holds by lookQuery.
func (e *Expirer) look(ctx context.Context, page []heldCampaign, share int) (map[string][]openHold, error) {
	holdForMs := make(map[string]int64, len(page))
	for i := range page {
		holdForMs[page[i].ID] = page[i].HoldForMs
	}
	query, args := lookQuery(e.relay.db.Name(), page, e.reach, share)
	var rows []openHold
	err := e.relay.db.WithContext(ctx).Raw(query, args...).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("resolve: look for holds: %w", err)
	}
	found := make(map[string][]openHold, len(page))
	for i := range rows {
		h := &rows[i]
		h.DueMs = h.ClaimedAt.UnixMilli() + holdForMs[h.campaignID()]
		found[h.campaignID()] = append(found[h.campaignID()], *h)
	}
	for _, holds := range found {
		slices.SortFunc(holds, func(a, b openHold) int { return int(a.Seq - b.Seq) })
	}
	return found, nil
}
