package residency

import (
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
	copy(ids[:from], campaigns.PacketsOf(m.rows, e.Type, e.Peer)) // which the rows of the lot name
	p, err := h.placesOf(ctx, e.CampaignID, m)
	if err == nil && !p.name(taker, ids[:upto]) {
		err = fmt.Errorf("%w: which packets lots %d and %d of %s exchanged is not known yet", lua.ErrUnavailable, giver, taker, e.CampaignID)
	}
	return ids[from:upto], err
}

// places say which lots have the packets of a campaign.
type places struct {
	order []string       // of the packets, by position
	moved map[string]int // the shards that they went to, by the rows of transfers
	had   map[string]int // the lots that have them: by claims, and by the lists that lots give packets away from

	// A shard has debited packets. What a lot has does not tell who gave it then.
	isMixed bool
}

// placesOf reads which lots have the packets of a campaign. Lists are read before claims: a packet that is taken then is in both.
func (h *Hydrator) placesOf(ctx context.Context, campaignID string, m *moved) (*places, error) {
	if m.places != nil {
		return m.places, nil
	}
	p := &places{moved: make(map[string]int), had: make(map[string]int)}
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
	if err != nil {
		return nil, err
	}
	m.places = p
	return p, nil
}

func (h *Hydrator) addPlaces(ctx context.Context, p *places, lot *models.Campaign, v *lua.ShardView) error {
	_, shard := models.SplitShardID(lot.ID)
	rows, err := campaigns.ReadTransfers(ctx, h.db.ConnPool, lot.ID)
	if err != nil {
		return err
	}
	for i := range rows {
		isDebit := rows[i].Type == models.EventUnitsDebited
		p.isMixed = p.isMixed || isDebit && shard != models.ReserveLot
		for _, id := range rows[i].IDs {
			if !isDebit {
				p.moved[id] = shard
			}
		}
	}
	var listed []string
	if isHeld(v) {
		for _, units := range v.Out {
			p.isMixed = p.isMixed || units > 0 && shard != models.ReserveLot
		}
		listed, err = h.scripts.PacketNames(ctx, lot.ID, v.Epoch)
		if err != nil {
			return err
		}
	}
	parked, err := writer.ReadParked(ctx, h.db.ConnPool, lot.ID)
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(listed, slices.Collect(maps.Keys(parked.Packets()))) {
		p.had[id] = shard
	}
	return nil
}

// name puts names in place of the empty ones in ids, the packets that the reserve gave to a shard: those that the shard has and that no row
// says where they went. It reports whether they are as many. Fewer may be on their way into MySQL.
func (p *places) name(taker int, ids []string) (done bool) {
	known := make(map[string]bool, len(ids))
	lacking := 0
	for _, id := range ids {
		known[id] = true
		if id == "" {
			lacking++
		}
	}
	var found []string
	for _, id := range p.order {
		if p.had[id] == taker && p.moved[id] == 0 && !known[id] {
			found = append(found, id)
		}
	}
	if p.isMixed || len(found) != lacking {
		return false
	}
	for i, id := range ids {
		if id == "" {
			ids[i] = found[0]
			found = found[1:]
		}
	}
	return true
}

// uncontested is how many units the reserve has debited for a peer by its rows, up to the first that the peer was not credited and that
// names a packet which another lot has.
func (p *places) uncontested(rows []models.Event, peer int, credited int64) int64 {
	upto := credited
	for i := range rows {
		e := &rows[i]
		if e.Type != models.EventUnitsDebited || e.Peer != peer || e.Cumulative <= credited {
			continue
		}
		if !p.isMixed && slices.ContainsFunc(e.IDs, func(id string) bool { return p.had[id] > 0 && p.had[id] != peer }) {
			return upto
		}
		upto = e.Cumulative
	}
	return upto
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
