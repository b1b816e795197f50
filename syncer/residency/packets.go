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
	"dibs/syncer/recovery"
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
	if isLacking() && giver > 0 {
		at := min(giver, len(m.views)) - 1
		entries, err := h.scripts.Debited(ctx, models.ShardID(e.CampaignID, giver), m.views[at].Epoch, taker, 0)
		if err != nil {
			return nil, err
		}
		ids = append(ids, make([]string, max(0, max(upto, int64(len(entries)))-int64(len(ids))))...)
		copy(ids, namesIn(entries))
	}
	if !isLacking() {
		return ids[from:upto], nil
	}
	ids = upTo(max(upto, int64(len(ids))), ids)
	p, err := h.packetsOf(ctx, e.CampaignID, m)
	switch {
	case err != nil || p.name(giver, taker, ids[:upto]):
	case m.policy == recovery.GiveUp:
		m.isUnknown = true
	default:
		err = fmt.Errorf("%w: which packets lots %d and %d of %s exchanged is not known yet; %s", lua.ErrUnavailable, giver, taker,
			e.CampaignID, wayOut)
	}
	return ids[from:upto], err
}

// wayOut is how a lot gets loaded whose packets are not known.
const wayOut = "`dibs reconcile --repair --give-up-claims` opens the campaign with the packets that it knows of"

// packets are which lots have the packets of a campaign, and between which they went.
type packets struct {
	order  []string // of the packets, by position
	lots   map[int]*lotPackets
	flying map[string]bool // on their way from lots that Redis holds
}

// lotPackets is what is known of the packets of a lot.
type lotPackets struct {
	isHeld     bool             // in Redis
	isListed   bool             // with its lists, which follow a load
	free       map[string]bool  // in its lists
	freeByRows map[string]bool  // of a shard without lists
	taken      map[string]bool  // by users
	gone, came map[int][]string // that it debited for each peer, and was credited from it, in order; "" is not known
	gave       map[int][]string // that it debited by its hash in Redis, or else by its rows
}

// packetsOf reads which lots have the packets of a campaign. What a packet leaves is read after what it goes to, but for lists, out of which
// claims take packets: one that moves then is in two lots or the lots count it.
func (h *Hydrator) packetsOf(ctx context.Context, campaignID string, m *moved) (*packets, error) {
	if m.packets != nil {
		return m.packets, nil
	}
	p := &packets{lots: make(map[int]*lotPackets)}
	ids := make([]string, len(m.lots))
	for i := range m.lots {
		ids[i] = m.lots[i].ID
		if err := h.addLot(ctx, p, ids[i], &m.views[i]); err != nil {
			return nil, err
		}
	}
	err := sqlstore.ScanAll(ctx, h.db.ConnPool, "SELECT packet_id, shard FROM claims WHERE campaign_id = ? AND packet_id IS NOT NULL",
		[]any{campaignID}, func(scan func(...any) error) error {
			var id string
			var shard int
			err := scan(&id, &shard)
			if p.lots[shard] != nil {
				p.lots[shard].taken[id] = true
			}
			return err
		})
	if err == nil {
		err = sqlstore.On(h.db.WithContext(ctx)).Scan(&p.order, "SELECT id FROM packets WHERE campaign_id = ? ORDER BY position", campaignID)
	}
	if err != nil {
		return nil, err
	}
	p.order = append(p.order, p.withoutRow()...)
	for i, now := range h.scripts.Shards(ctx, ids) {
		if was := &m.views[i]; now.Status != was.Status || now.Epoch != was.Epoch || now.TSeq != was.TSeq {
			return nil, fmt.Errorf("%w: packets of %s went to another lot", campaigns.ErrMoved, ids[i])
		}
	}
	for number, lot := range p.lots {
		lot.gave = maps.Clone(lot.gone)
		for peer, other := range p.lots {
			if came := other.came[number]; !lot.isHeld { // Redis may have forgotten what was not credited, and MySQL what was
				lot.gone[peer] = upTo(int64(len(came)), lot.gone[peer][:min(len(lot.gone[peer]), len(came))])
			}
			share(lot.gone[peer], other.came[number])
		}
		maps.DeleteFunc(lot.freeByRows, func(id string, _ bool) bool { return lot.taken[id] })
	}
	m.packets = p
	return p, nil
}

// withoutRow are packets that lots have, or had, and that have no row, because they were added after what MySQL was restored to.
func (p *packets) withoutRow() []string {
	lacking := make(map[string]bool)
	for _, lot := range p.lots {
		maps.Copy(lacking, lot.free)
		maps.Copy(lacking, lot.taken)
		for _, of := range []map[int][]string{lot.gone, lot.came} {
			for _, ids := range of {
				for _, id := range ids {
					lacking[id] = true
				}
			}
		}
	}
	for _, id := range append(p.order, "") {
		delete(lacking, id)
	}
	return slices.Sorted(maps.Keys(lacking))
}

// share has two lists of the same packets name what either names.
func share(a, b []string) {
	for i := range min(len(a), len(b)) {
		a[i] = cmp.Or(a[i], b[i])
		b[i] = cmp.Or(b[i], a[i])
	}
}

func (h *Hydrator) addLot(ctx context.Context, p *packets, id string, v *lua.ShardView) error {
	_, shard := models.SplitShardID(id)
	lot := &lotPackets{
		free: make(map[string]bool), freeByRows: make(map[string]bool), taken: make(map[string]bool),
		gone: make(map[int][]string), came: make(map[int][]string),
	}
	p.lots[shard] = lot
	rows, err := campaigns.ReadTransfers(ctx, h.db.ConnPool, id)
	if err != nil {
		return err
	}
	counts := campaigns.Counted(rows)
	lot.isHeld = isHeld(v)
	if lot.isHeld {
		lot.isListed = v.Status != models.StatusLoading
		counts.Out = v.Out
		for peer, n := range v.In {
			counts.In[peer] = max(counts.In[peer], n)
		}
	}
	for peer, n := range counts.In {
		lot.came[peer] = upTo(n, campaigns.PacketsOf(rows, models.EventUnitsCredited, peer))
	}
	for peer, n := range counts.Out {
		lot.gone[peer] = upTo(n, campaigns.PacketsOf(rows, models.EventUnitsDebited, peer))
		if lot.isHeld {
			entries, err := h.scripts.Debited(ctx, id, v.Epoch, peer, 0)
			if err != nil {
				return err
			}
			copy(lot.gone[peer], namesIn(entries))
		}
	}
	if !lot.isListed && shard != models.ReserveLot {
		for id, n := range p.byRows(shard, rows) {
			lot.freeByRows[id] = n > 0 && id != ""
		}
	}
	if lot.isHeld {
		free, err := h.scripts.PacketNames(ctx, id, v.Epoch)
		if err == nil {
			err = h.scripts.ScanClaimRecords(ctx, id, func(page []lua.RecordedClaim) error {
				for i := range page {
					if id := page[i].PacketID; id != "" {
						lot.taken[id] = true
					}
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
		for _, id := range free {
			lot.free[id] = true
		}
	}
	parked, err := writer.ReadParked(ctx, h.db.ConnPool, id)
	if err == nil {
		maps.Copy(lot.taken, parked.Packets())
	}
	return err
}

// upTo is the first n of some packets, those that are not known as "".
func upTo(n int64, ids []string) []string {
	all := make([]string, n)
	copy(all, ids)
	return all
}

// namesIn are the ids in entries of lists of debited packets.
func namesIn(entries []string) []string {
	ids := make([]string, len(entries))
	for i, entry := range entries {
		ids[i] = entry[strings.LastIndexByte(entry, ':')+1:]
	}
	return ids
}

// seeFlying finds what lots that Redis holds have debited, and their peers were not credited.
func (p *packets) seeFlying() {
	p.flying = make(map[string]bool)
	for from, giver := range p.lots {
		for to, taker := range p.lots {
			for _, id := range giver.gone[to][min(len(giver.gone[to]), len(taker.came[from])):] {
				p.flying[id] = id != ""
			}
		}
	}
}

// isElsewhere reports whether a packet is on its way, or another lot has it, by its rows at least.
func (p *packets) isElsewhere(id string, than int) bool {
	for number, lot := range p.lots {
		if number != than && lot.freeByRows[id] {
			return true
		}
	}
	return p.flying[id] || p.others(id, than)
}

// others reports whether another lot has a packet.
func (p *packets) others(id string, than int) bool {
	for number, lot := range p.lots {
		if number != than && (lot.free[id] || lot.taken[id]) {
			return true
		}
	}
	return false
}

// name puts names in place of the empty ones in ids, the first packets that a lot gave another. What the taker has or passed on came to it,
// so what did not come otherwise is of these. It reports whether they are as many: a packet may be missing, because its claim is lost.
func (p *packets) name(giver, taker int, ids []string) (done bool) {
	lot := p.lots[taker]
	if lot == nil { // the total
		return false
	}
	edge := upTo(int64(max(len(ids), len(lot.came[giver]))), lot.came[giver])
	share(edge, ids)
	came := maps.Clone(lot.came)
	came[giver] = edge
	times := p.passedOn(taker) // that a packet came from the giver, beyond those that are named
	for _, id := range p.order {
		if lot.free[id] || lot.taken[id] {
			times[id]++
		}
	}
	lacking := 0
	for peer, ids := range came {
		for _, id := range ids {
			times[id]--
			if id == "" && peer != giver {
				return false
			}
			if id == "" {
				lacking++
			}
		}
	}
	var found []string
	for _, id := range p.order {
		for range times[id] {
			found = append(found, id)
		}
	}
	if len(found) != lacking {
		return false
	}
	for i, id := range edge {
		if id == "" {
			edge[i] = found[0]
			found = found[1:]
		}
	}
	lot.came[giver] = edge
	share(ids, edge)
	return true
}

// passedOn is how often a lot gave each packet to another that another had given it.
func (p *packets) passedOn(lot int) map[string]int {
	times := make(map[string]int)
	if lot == models.ReserveLot { // where each begins
		for _, id := range p.order {
			times[id]--
		}
	}
	for _, ids := range p.lots[lot].gone {
		for _, id := range ids {
			times[id]++
		}
	}
	delete(times, "")
	return times
}

// uncontested is how many units the reserve has debited for a peer by its rows, up to the first that the peer was not credited and that
// names a packet which a lot has that did not get it by that.
func (p *packets) uncontested(rows []models.Event, peer int, credited int64) int64 {
	upto := credited
	passedOn := p.passedOn(peer)
	than := peer
	if p.lots[peer].isHeld { // it is known to lack what it was not credited
		than = -1
	}
	for i := range rows {
		e := &rows[i]
		if e.Type != models.EventUnitsDebited || e.Peer != peer {
			continue
		}
		for j, id := range e.IDs {
			passedOn[id]--
			if e.Cumulative-e.Quantity+int64(j) >= credited && passedOn[id] < 0 && p.others(id, than) {
				return upto
			}
		}
		upto = max(upto, e.Cumulative)
	}
	return upto
}

// cameTo is how many units a lot that Redis does not hold was credited from a peer at least: what its rows say, and all before a packet that the
// peer debited for it and that the lot passed on, or that a lot has: one of its own if Redis does not hold the peer, whose rows may name
// packets that the peer gave others. What is debited and not credited no lot has.
func (p *packets) cameTo(lot, peer int, known int64) int64 {
	giver := p.lots[peer]
	passedOn := p.passedOn(lot)
	for i, id := range giver.gave[lot] {
		passedOn[id]--
		if passedOn[id] >= 0 || p.lots[lot].taken[id] || giver.isHeld && p.others(id, -1) {
			known = max(known, int64(i)+1)
		}
	}
	return known
}

// seeCredits has a lot of packets that Redis does not hold count credits that MySQL lacks, or its peers would credit it packets once more
// that it gave to users or to other lots.
func (h *Hydrator) seeCredits(ctx context.Context, c *models.Campaign, m *moved) error {
	campaignID, shard := models.SplitShardID(c.ID)
	gave, err := h.movedBy(ctx, models.EventUnitsDebited, campaignID, shard)
	if err != nil {
		return err
	}
	for i := range m.views {
		_, peer := models.SplitShardID(m.lots[i].ID)
		if isHeld(&m.views[i]) {
			gave[peer] = m.views[i].Out[shard]
		}
		if known := m.counts.In[peer]; gave[peer] > known {
			p, err := h.packetsOf(ctx, campaignID, m)
			if err != nil {
				return err
			}
			m.counts.In[peer] = p.cameTo(shard, peer, known)
			came := p.lots[shard].came
			came[peer] = upTo(m.counts.In[peer], came[peer])
			share(came[peer], p.lots[peer].gave[shard])
		}
	}
	return nil
}

// withhold has a lot begin with the packets that it has for certain, if those that its rows say are not all known, or contradict what other
// lots have. It debits the total of the campaign, peer 0, what only its rows say it has, and is credited from there what they lack. What
// another lot has is only booked so. What none has no lot gives away: it goes back to the sender when the campaign ends, and an operator
// is asked before.
func (h *Hydrator) withhold(ctx context.Context, c *models.Campaign, m *moved, epoch int64) error {
	isLoaded := func(c models.Campaign) bool { return c.Residency != models.ResidencyNone }
	isFirst := len(m.rows) == 0 && !isLoaded(m.lots[m.at]) && (m.at < len(m.lots)-1 || !slices.ContainsFunc(m.lots, isLoaded))
	if !m.isUnknown && (m.isExact || isFirst || isHeld(&m.views[m.at]) && m.policy == recovery.Auto) {
		return nil
	}
	campaignID, shard := models.SplitShardID(c.ID)
	p, err := h.packetsOf(ctx, campaignID, m)
	if err != nil {
		return err
	}
	p.seeFlying()
	times := p.byRows(shard, m.rows)
	if !m.isUnknown && !p.contradicts(shard, times) {
		return nil
	}
	has, err := p.has(shard, times, m)
	if err != nil {
		return err
	}
	isCertain := true // packets whose names are lost are an operator's already
	var out, in []string
	for id := range has {
		if _, isKnown := times[id]; !isKnown {
			times[id] = 0
		}
	}
	for id, n := range times {
		if has[id] {
			n--
		}
		out = append(out, slices.Repeat([]string{id}, max(0, n))...)
		in = append(in, slices.Repeat([]string{id}, max(0, -n))...)
		isCertain = isCertain && (n == 0 || has[id] && n > 0 || p.lots[shard].taken[id] || p.flying[id] || p.others(id, shard))
	}
	if !isCertain && m.policy != recovery.GiveUp {
		return fmt.Errorf("%w: the packets of %s contradict those of other lots; %s", lua.ErrUnavailable, c.ID, wayOut)
	}
	debit := newRow(c, models.EventUnitsDebited, 0, epoch)
	debit.Cumulative = m.counts.Out[0]
	credit := newRow(c, models.EventUnitsCredited, 0, epoch)
	credit.Cumulative = m.counts.In[0]
	m.counts.Out[0] += int64(len(out))
	m.counts.In[0] += int64(len(in))
	m.append(&debit, m.counts.Out[0], lua.PushMax, out)
	m.append(&credit, m.counts.In[0], lua.PushMax, in)
	return nil
}

// byRows counts how often a lot has each packet by some rows; "" are those without names.
func (p *packets) byRows(lot int, rows []models.Event) map[string]int {
	times := make(map[string]int)
	if lot == models.ReserveLot {
		for _, id := range p.order {
			times[id] = 1
		}
	}
	for i := range rows {
		n := 1
		if rows[i].Type == models.EventUnitsDebited {
			n = -1
		}
		for _, id := range rows[i].IDs {
			times[id] += n
		}
		times[""] += n * (int(rows[i].Quantity) - len(rows[i].IDs))
	}
	return times
}

// contradicts reports whether the packets of a lot by its rows can't be those that it has.
func (p *packets) contradicts(lot int, times map[string]int) bool {
	for id, n := range times {
		if n < 0 || n > 1 || n == 1 && p.isElsewhere(id, lot) {
			return true
		}
	}
	for id := range p.lots[lot].taken {
		if times[id] == 0 {
			return true
		}
	}
	return false
}

// has are the packets that a lot has for certain: those of its users, those in its lists that no other lot has, and those that only its
// rows say, unless they are more than it counts. A reserve that Redis does not hold has all that no shard has, if Redis holds all shards.
func (p *packets) has(number int, times map[string]int, m *moved) (map[string]bool, error) {
	lot := p.lots[number]
	has := maps.Clone(lot.taken)
	for id := range lot.free {
		if !p.others(id, number) {
			has[id] = true
		}
	}
	if number != models.ReserveLot && !lot.isListed {
		units := 0
		byRows := maps.Clone(has)
		for id, n := range times {
			units += n
			if n > 0 && id != "" && !p.isElsewhere(id, number) {
				byRows[id] = true
			}
		}
		if len(byRows) <= units {
			has = byRows
		}
	}
	if number != models.ReserveLot || lot.isListed {
		return has, nil
	}
	for i := range m.lots[:len(m.lots)-1] {
		if _, shard := models.SplitShardID(m.lots[i].ID); !p.lots[shard].isListed {
			return nil, fmt.Errorf("%w: %s is to be loaded first", lua.ErrUnavailable, m.lots[i].ID)
		}
	}
	for _, id := range p.order {
		if !p.others(id, number) {
			has[id] = true
		}
	}
	maps.DeleteFunc(has, func(id string, _ bool) bool { return p.flying[id] })
	for i := range m.rows {
		e := &m.rows[i]
		if e.Type != models.EventUnitsDebited || e.Peer == 0 {
			continue
		}
		for j, id := range e.IDs {
			if e.Cumulative-e.Quantity+int64(j) >= int64(len(p.lots[e.Peer].came[number])) {
				delete(has, id)
			}
		}
	}
	return has, nil
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

// nameless stands for a packet whose name is lost. It is no entry that credit.lua takes: the peer has been credited it.
const nameless = "0:0:"

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
		if id == "" {
			entries[i] = nameless
		}
		if err == nil && entries[i] == "" {
			err = fmt.Errorf("%w: packet %q of %s was moved between lots and has no row: add it again as it was", lua.ErrUnavailable,
				id, campaignID)
		}
	}
	return entries, err
}
