package residency

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// lackingPackets names the packets of a debit or credit that a lot lacks the row of, from a number of them up to another: by the rows of
// its peer, or by the list that the giver keeps in Redis.
func (h *Hydrator) lackingPackets(ctx context.Context, e *models.Event, upto int64, views []lua.ShardView) ([]string, error) {
	from := e.Cumulative
	giver := e.Shard
	taker := e.Peer
	kind := models.EventUnitsCredited
	if e.Type == models.EventUnitsCredited {
		giver = e.Peer
		taker = e.Shard
		kind = models.EventUnitsDebited
	}
	rows, err := campaigns.ReadTransfers(ctx, h.db.ConnPool, models.ShardID(e.CampaignID, e.Peer))
	if err != nil {
		return nil, err
	}
	ids := campaigns.PacketsOf(rows, kind, e.Shard)
	isLacking := func() bool { return int64(len(ids)) < upto || slices.Contains(ids[from:upto], "") }
	if isLacking() {
		at := min(giver, len(views)) - 1
		entries, err := h.scripts.Debited(ctx, models.ShardID(e.CampaignID, giver), views[at].Epoch, taker, 0)
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, entry := range entries {
			ids = append(ids, entry[strings.LastIndexByte(entry, ':')+1:])
		}
	}
	if isLacking() {
		return nil, fmt.Errorf("%w: which packets lots %d and %d of %s exchanged is not known yet",
			lua.ErrUnavailable, giver, taker, e.CampaignID)
	}
	return ids[from:upto], nil
}

// stageDebited stages the packets that a lot has debited, as its rows have them.
func (h *Hydrator) stageDebited(ctx context.Context, c *models.Campaign, staging *lua.Rebuild, m *moved) error {
	campaignID, _ := models.SplitShardID(c.ID)
	for peer := range m.counts.Out {
		for ids := range slices.Chunk(campaigns.PacketsOf(m.rows, models.EventUnitsDebited, peer), lua.PushMax) {
			entries, err := h.entriesOf(ctx, campaignID, ids)
			if err != nil {
				return err
			}
			if err := staging.AddDebited(ctx, peer, entries); err != nil {
				return err
			}
		}
	}
	return nil
}

// entriesOf are packets as the lists of those debited have them.
func (h *Hydrator) entriesOf(ctx context.Context, campaignID string, ids []string) ([]string, error) {
	args := append([]any{campaignID}, sqlstore.Args(ids)...)
	byID := make(map[string]string, len(ids))
	err := sqlstore.ScanAll(ctx, h.db.ConnPool, "SELECT id, amount, release_at FROM packets WHERE campaign_id = ? AND id IN "+
		sqlstore.Marks(len(ids)), args, func(scan func(...any) error) error {
		var id string
		var amount int64
		var release sql.NullTime
		err := scan(&id, &amount, &release)
		byID[id] = fmt.Sprintf("%d:%d:%s", campaigns.ReleaseMs(release), amount, id)
		return err
	})
	entries := make([]string, len(ids))
	for i, id := range ids {
		entries[i] = byID[id]
		if err == nil && entries[i] == "" {
			err = fmt.Errorf("%w: packet %q of %s was moved between lots and has no row", lua.ErrUnavailable, id, campaignID)
		}
	}
	return entries, err
}
