package residency

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// lackingPackets names the packets of a debit or credit that a lot lacks the row of, from a number of them up to another: by the rows of
// its peer, by the list that the giver keeps in Redis, or by what packets the taker has.
func (h *Hydrator) lackingPackets(ctx context.Context, e *models.Event, upto int64, m *moved) ([]string, error) {
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
		at := min(giver, len(m.views)) - 1
		entries, err := h.scripts.Debited(ctx, models.ShardID(e.CampaignID, giver), m.views[at].Epoch, taker, 0)
		if err != nil {
			return nil, err
		}
		ids = append(ids, make([]string, max(0, max(upto, int64(len(entries)))-int64(len(ids))))...)
		for i, entry := range entries {
			ids[i] = entry[strings.LastIndexByte(entry, ':')+1:]
		}
	}
	if !isLacking() {
		return ids[from:upto], nil
	}
	p, err := h.placesOf(ctx, e.CampaignID, m)
	if err == nil && !p.name(giver, taker, ids[:upto]) {
		err = fmt.Errorf("%w: which packets lots %d and %d of %s exchanged is not known yet", lua.ErrUnavailable, giver, taker, e.CampaignID)
	}
	return ids[from:upto], err
}

// places say which lots have the packets of a campaign.
type places struct {
	order   []string       // of the packets, by position
	moved   map[string]int // the shards that they went to, by the rows of transfers
	had     map[string]int // the lots that have them: by claims, and by the lists that lots give packets away from
	isWhole bool           // MySQL has all claims that Redis has counted
}

// placesOf reads which lots have the packets of a campaign. Lists are read before claims: a packet that is taken then is in both.
func (h *Hydrator) placesOf(ctx context.Context, campaignID string, m *moved) (*places, error) {
	if m.places != nil {
		return m.places, nil
	}
	p := &places{moved: make(map[string]int), had: make(map[string]int), isWhole: true}
	for i := range m.lots {
		if err := h.addPlaces(ctx, p, &m.lots[i], &m.views[i]); err != nil {
			return nil, err
		}
	}
	err := sqlstore.ScanAll(ctx, h.db.ConnPool, "SELECT packet_id, shard FROM claims WHERE campaign_id = ? AND packet_id IS NOT NULL",
		[]any{campaignID}, func(scan func(...any) error) error {
			var id string
			var shard int
			err := scan(&id, &shard)
			p.had[id] = shard
			return err
		})
	if err == nil {
		err = sqlstore.On(h.db.WithContext(ctx)).Scan(&p.order, "SELECT id FROM packets WHERE campaign_id = ? ORDER BY position", campaignID)
	}
	m.places = p
	return p, err
}

func (h *Hydrator) addPlaces(ctx context.Context, p *places, lot *models.Campaign, v *lua.ShardView) error {
	_, shard := models.SplitShardID(lot.ID)
	ids, allBut, err := campaigns.PacketsOfLot(ctx, h.db.ConnPool, lot.ID)
	for _, id := range ids {
		if !allBut {
			p.moved[id] = shard
		}
	}
	var listed []string
	if err == nil && isHeld(v) {
		p.isWhole = p.isWhole && v.Seq <= lot.SyncedSeq
		listed, err = h.scripts.PacketNames(ctx, lot.ID, v.Epoch)
	}
	var parked *writer.ParkedClaims
	if err == nil {
		parked, err = writer.ReadParked(ctx, h.db.ConnPool, lot.ID)
	}
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(listed, slices.Collect(maps.Keys(parked.Packets()))) {
		p.had[id] = shard
	}
	return nil
}

// name puts names in place of the empty ones in ids, the packets that went from one lot to another. The taker has them, whoever had them
// before; and if it is known who has which, others of the giver that no lot has will do. It reports whether there were enough.
func (p *places) name(giver, taker int, ids []string) (done bool) {
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	had := func(id string) int { return p.had[id] }
	at := func(id string) int { return cmp.Or(p.moved[id], models.ReserveLot) }
	for _, is := range []func(id string) bool{
		func(id string) bool { return had(id) == taker && at(id) == giver },
		func(id string) bool { return had(id) == taker && at(id) != taker },
		func(id string) bool { return had(id) == 0 && at(id) == giver && p.isWhole },
	} {
		for _, id := range p.order {
			i := slices.Index(ids, "")
			if i < 0 {
				return true
			}
			if !known[id] && is(id) {
				ids[i] = id
				known[id] = true
			}
		}
	}
	return !slices.Contains(ids, "")
}

// isContested reports whether a packet of the rows, which debit a peer units that it was not credited, is in a third lot.
func (p *places) isContested(rows []models.Event, peer int, credited int64) bool {
	for i := range rows {
		if e := &rows[i]; e.Type == models.EventUnitsDebited && e.Peer == peer && e.Cumulative > credited &&
			slices.ContainsFunc(e.IDs, func(id string) bool { return p.had[id] > 0 && p.had[id] != peer && p.had[id] != e.Shard }) {
			return true
		}
	}
	return false
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
