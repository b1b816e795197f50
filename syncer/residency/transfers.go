package residency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
	"dibs/syncer/writer"

	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// moved is what a load brings a lot of a campaign of several shards, and how the rows of stock_moves are corrected by it.
type moved struct {
	known, total int64 // tseq and total in MySQL
	attempts     int64 // of its peers, see attemptsOf
	units, tseq  int64
	counts       lua.Transfers
	rows         []models.Event // all, as they are then
	add          []models.Event // those of rows that MySQL lacks
	void         []int64        // tseqs of debits that Redis forgot

	lots    []models.Campaign // of the campaign, and what Redis holds of them
	views   []lua.ShardView
	at      int      // of the lot among lots
	packets *packets // read if it is not known otherwise which packets went

	policy    recovery.Policy
	isExact   bool // MySQL has just what Redis evicted
	isUnknown bool // there are packets whose names are lost
}

// peersAtOnce is how many peers of a lot are notified of its load at the same time.
const peersAtOnce = 16

// transfers finds out what load epoch of a lot begins with. MySQL, Redis and its peers know of its debits and credits:
//
//   - It was credited what either of its rows and its hash in Redis say: the giver had debited that, on its disk.
//   - It has debited what Redis says, as long as Redis holds it, and what its rows say else. A debit that Redis does not know was not
//     on its disk, so no one was credited. Nor was one that only rows know and that no one was credited, if a third lot has its packets.
//   - It has debited no less than its peers were credited, the floors. Each peer refuses credits of its earlier loads from now on.
func (h *Hydrator) transfers(ctx context.Context, o *lot, epoch int64) (m *moved, err error) {
	c := &o.row.Campaign
	campaignID, shard := models.SplitShardID(c.ID)
	m = &moved{policy: o.policy, isExact: o.IsEvicted()}
	m.attempts, err = attemptsOf(ctx, h.db.ConnPool, c.ID, "") // before Redis
	if err != nil {
		return nil, err
	}
	if err := h.db.WithContext(ctx).Where("campaign_id = ?", campaignID).Order("shard").Find(&m.lots).Error; err != nil {
		return nil, err
	}
	if len(m.lots) == 0 || len(m.lots) != 1+len(m.lots[0].LotIDs()) {
		return nil, fmt.Errorf("%w: lots of %s", sqlstore.ErrShort, campaignID)
	}
	whole := &m.lots[0]
	m.lots = m.lots[1:]
	ids := whole.LotIDs()
	m.views = h.scripts.Shards(ctx, ids)
	// After Redis: what it holds may be booked by now, and evicted.
	mine, err := campaigns.ReadTransfers(ctx, h.db.ConnPool, c.ID)
	if err != nil {
		return nil, err
	}
	credited, err := h.movedBy(ctx, models.EventUnitsCredited, campaignID, shard)
	if err != nil {
		return nil, err
	}
	m.at = slices.Index(ids, c.ID)
	if err := m.begin(&m.lots[m.at], &m.views[m.at], mine); err != nil {
		return nil, err
	}
	isPackets := c.Kind == models.KindPacket
	if isPackets && !isHeld(&m.views[m.at]) {
		if err := h.seeCredits(ctx, c, m); err != nil {
			return nil, err
		}
	}
	if shard == models.ReserveLot {
		m.counts.Out[0] = max(m.counts.Out[0], whole.Lowered)
	}
	if err := h.floors(ctx, m, credited, shard, epoch); err != nil {
		return nil, err
	}
	if err := h.giveNoLess(ctx, c, m, mine, credited); err != nil {
		return nil, err
	}
	if len(mine) == 0 && m.known > 0 { // the rows of a campaign that ended are pruned
		m.units = m.total
		return m, nil
	}
	if err := h.correct(ctx, c, m, mine, epoch); err != nil {
		return nil, err
	}
	if isPackets {
		if err := h.withhold(ctx, c, m, epoch); err != nil {
			return nil, err
		}
	}
	if shard == models.ReserveLot && isPackets {
		m.units = whole.Total
	}
	for peer := range models.ReserveLot + 1 {
		m.units += m.counts.In[peer] - m.counts.Out[peer]
	}
	return m, nil
}

// begin has the lot count what its rows say, and its hash in Redis.
func (m *moved) begin(lot *models.Campaign, own *lua.ShardView, mine []models.Event) error {
	m.known = lot.TSeq
	m.total = lot.Total
	m.tseq = max(m.known, own.TSeq)
	for i := range mine {
		m.tseq = max(m.tseq, mine[i].TSeq)
	}
	m.counts = campaigns.Counted(mine)
	switch {
	case isHeld(own):
		if lot.Kind == models.KindPacket { // a load debits the total, see withhold
			own.Out[0] = max(own.Out[0], m.counts.Out[0])
		}
		m.counts.Out = own.Out
		for peer, n := range own.In {
			m.counts.In[peer] = max(m.counts.In[peer], n)
		}
	case !errors.Is(own.Err, lua.ErrAbsent) && !errors.Is(own.Err, lua.ErrDamaged):
		return fmt.Errorf("%w: what redis holds of it is not known: %w", lua.ErrUnavailable, own.Err)
	}
	return nil
}

// movedBy is what the peers of a lot were credited from it by their rows, or debited for it.
func (h *Hydrator) movedBy(ctx context.Context, kind models.EventType, campaignID string, shard int) (map[int]int64, error) {
	units := make(map[int]int64)
	err := sqlstore.ScanAll(ctx, h.db.ConnPool, "SELECT shard, MAX(cumulative) FROM stock_moves WHERE campaign_id = ? AND kind = ?"+
		" AND peer = ? GROUP BY shard", []any{campaignID, kind, shard}, func(scan func(...any) error) error {
		var peer int
		var most int64
		err := scan(&peer, &most)
		units[peer] = most
		return err
	})
	return units, err
}

// isHeld reports whether what Redis says of a lot is what it last held, or what a load that was not confirmed found out of that.
func isHeld(v *lua.ShardView) bool { return v.Status != "" && !errors.Is(v.Err, lua.ErrDamaged) }

// giveNoLess has a lot debit what its peers were credited, and of what only rows know no more than is uncontested.
func (h *Hydrator) giveNoLess(ctx context.Context, c *models.Campaign, m *moved, mine []models.Event, credited map[int]int64) error {
	campaignID, shard := models.SplitShardID(c.ID)
	knowsByRows := c.Kind == models.KindPacket && shard == models.ReserveLot && !isHeld(&m.views[len(m.views)-1])
	for peer, n := range credited {
		if knowsByRows && m.counts.Out[peer] > n {
			p, err := h.packetsOf(ctx, campaignID, m)
			if err != nil {
				return err
			}
			m.counts.Out[peer] = p.uncontested(mine, peer, n)
		}
		m.counts.Out[peer] = max(m.counts.Out[peer], n)
	}
	return nil
}

// floors raises what peers were credited from a lot to what Redis says, and has them refuse credits of its loads before epoch.
func (h *Hydrator) floors(ctx context.Context, m *moved, credited map[int]int64, shard int, epoch int64) error {
	found := make([]int64, len(m.lots))
	var asked errgroup.Group
	asked.SetLimit(peersAtOnce)
	for i := range m.lots {
		_, peer := models.SplitShardID(m.lots[i].ID)
		if peer == shard {
			continue
		}
		m.counts.Load[peer] = m.lots[i].LoadAttempts
		if m.views[i].Err == nil { // loads that were started after it never came to be
			m.counts.Load[peer] = m.views[i].Epoch
		}
		asked.Go(func() (err error) {
			found[i], err = h.floor(ctx, &m.lots[i], &m.views[i], shard, epoch)
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		return err //nolint:wrapcheck // floor's
	}
	for i, floor := range found {
		if _, peer := models.SplitShardID(m.lots[i].ID); peer != shard {
			credited[peer] = max(credited[peer], floor)
		}
	}
	return nil
}

func (h *Hydrator) floor(ctx context.Context, peer *models.Campaign, v *lua.ShardView, shard int, epoch int64) (int64, error) {
	switch {
	case v.Load[shard] > epoch: // MySQL was restored, and numbers loads again
		campaignID, _ := models.SplitShardID(peer.ID)
		err := sqlstore.On(h.db.WithContext(ctx)).Run("UPDATE lots SET load_attempts = ? WHERE id = ? AND load_attempts < ?",
			v.Load[shard], models.ShardID(campaignID, shard), v.Load[shard])
		return 0, errors.Join(fmt.Errorf("%w: %s knows load %d of lot %d", lua.ErrUnavailable, peer.ID, v.Load[shard], shard), err)
	case epoch == firstNumber: // there are no earlier loads
		return v.In[shard], nil
	case isHeld(v):
		peer.Epoch = v.Epoch
		credited, err := h.scripts.Credit(ctx, peer, &lua.Credit{Seen: lua.Position{Epoch: v.Epoch}, Peer: shard, PeerLoad: epoch})
		if errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrOther) {
			err = fmt.Errorf("%w: %s is loaded or evicted: %w", lua.ErrUnavailable, peer.ID, err)
		}
		return credited.Upto, err
	case errors.Is(v.Err, lua.ErrAbsent), errors.Is(v.Err, lua.ErrDamaged):
		return 0, nil // its rows decide
	}
	return 0, v.Err
}

// correct has the rows of a lot say what the load begins with: debits that Redis forgot have none, and what no row has gets one.
func (h *Hydrator) correct(ctx context.Context, c *models.Campaign, m *moved, mine []models.Event, epoch int64) error {
	slices.SortFunc(mine, func(a, b models.Event) int { return cmp.Compare(a.Cumulative, b.Cumulative) })
	for peer := range models.ReserveLot + 1 {
		for kind, upto := range map[models.EventType]int64{
			models.EventUnitsDebited: m.counts.Out[peer], models.EventUnitsCredited: m.counts.In[peer],
		} {
			last := newRow(c, kind, peer, epoch)
			for i := range mine {
				switch row := &mine[i]; {
				case row.Type != kind || row.Peer != peer:
				case row.Cumulative > upto:
					m.void = append(m.void, row.TSeq)
				default:
					if err := h.fill(ctx, c, m, &last, row.Cumulative-row.Quantity); err != nil {
						return err
					}
					last.Cumulative = row.Cumulative
					m.rows = append(m.rows, *row)
				}
			}
			if err := h.fill(ctx, c, m, &last, upto); err != nil {
				return err
			}
		}
	}
	return nil
}

// newRow is a row of a lot that a load makes.
func newRow(c *models.Campaign, kind models.EventType, peer int, epoch int64) models.Event {
	e := models.Event{Type: kind, Peer: peer, Epoch: epoch, At: models.NewTime(sqlstore.Now())}
	e.CampaignID, e.Shard = models.SplitShardID(c.ID)
	return e
}

// fill adds the rows that a lot lacks behind its last one of a kind and a peer, up to a number of units.
func (h *Hydrator) fill(ctx context.Context, c *models.Campaign, m *moved, last *models.Event, upto int64) (err error) {
	most := upto // units of a row
	var ids []string
	if c.Kind == models.KindPacket && last.Cumulative < upto {
		most = lua.PushMax
		ids, err = h.lackingPackets(ctx, last, upto, m)
	}
	if err == nil {
		m.append(last, upto, most, ids)
	}
	return err
}

// append adds rows behind the last one of a kind and a peer, up to a number of units.
func (m *moved) append(last *models.Event, upto, most int64, ids []string) {
	for last.Cumulative < upto {
		m.tseq++
		last.TSeq = m.tseq
		last.Quantity = min(most, upto-last.Cumulative)
		last.Cumulative += last.Quantity
		if ids != nil {
			last.IDs = ids[:last.Quantity]
			ids = ids[last.Quantity:]
		}
		m.add = append(m.add, *last)
		m.rows = append(m.rows, *last)
	}
}

// attemptsOf adds up the loads that were started of the peers of a lot. A lot that was never loaded has debited nothing: its first load
// does not count.
func attemptsOf(ctx context.Context, q sqlstore.Querier, lotID, lock string) (n int64, err error) {
	campaignID, _ := models.SplitShardID(lotID)
	err = sqlstore.ScanAll(ctx, q, "SELECT load_attempts FROM lots WHERE campaign_id = ? AND shard > 0 AND id <> ? AND load_attempts > 1"+lock,
		[]any{campaignID, lotID}, func(scan func(...any) error) error {
			var attempts int64
			err := scan(&attempts)
			n += attempts
			return err
		})
	return n, err
}

// errMovedOn says that a row came while a lot was loaded, or that the load of a peer was started, which this one has to know of.
var errMovedOn = errors.New("residency: units of the lot moved in the meantime, or a peer is loaded")

// confirmMoved has the rows say what a load brought, in the transaction that confirms it.
func (h *Hydrator) confirmMoved(ctx context.Context, tx *gorm.DB, c *models.Campaign, m *moved) error {
	var known int64
	if err := sqlstore.On(tx).Scan(&known, "SELECT tseq FROM lots WHERE id = ?", c.ID); err != nil {
		return err
	}
	attempts, err := attemptsOf(ctx, tx.Statement.ConnPool, c.ID, sqlstore.InShareMode(h.db))
	if err != nil {
		return err
	}
	if known != m.known || attempts != m.attempts {
		return sqlstore.Final(errMovedOn)
	}
	campaignID, shard := models.SplitShardID(c.ID)
	if len(m.void) > 0 {
		err := sqlstore.On(tx).Run("DELETE FROM stock_moves WHERE campaign_id = ? AND shard = ? AND tseq IN ?", campaignID, shard, m.void)
		if err != nil {
			return err
		}
	}
	if err := writer.PutTransfers(ctx, tx.Statement.ConnPool, m.add); err != nil {
		return err
	}
	// Packets may have been added since.
	return sqlstore.On(tx).Run("UPDATE lots SET tseq = ?, total = total + ? WHERE id = ?", m.tseq, m.units-m.total, c.ID)
}

// stageMoved stages what a lot of a campaign of several shards begins with beside its claims.
func (h *Hydrator) stageMoved(ctx context.Context, o *lot, staging *lua.Rebuild, epoch int64, loaded *books) error {
	c := &o.row.Campaign
	m, err := h.transfers(ctx, o, epoch)
	if err != nil {
		return fmt.Errorf("residency: units of %s: %w", c.ID, err)
	}
	loaded.moved = m
	staging.SetTransfers(m.units, m.tseq, &m.counts)
	if c.Kind == models.KindPacket {
		return h.stageDebited(ctx, c, staging, m)
	}
	return nil
}
