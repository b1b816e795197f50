package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// shards compares each lot of a campaign with what Redis holds of it, and the sums of the shards with the campaign.
func (a *attempt) shards(ctx context.Context) error {
	c := &a.snap.campaign
	a.found = Comparison{
		CampaignID: c.ID, Residency: models.ResidencyNone, Differences: []string{}, Backlog: new(int64), Drift: new(int64),
		Redis: &RedisFigures{Total: c.Total}, lacks: make(map[int]int64), unbooked: make(map[string]int64),
		MySQL: MySQLFigures{Total: c.Total}, // the rest is of the shards' snapshots, as what Redis holds is
	}
	if a.depth >= DepthRows {
		a.found.Rows = &RowFigures{}
	}
	for _, id := range c.LotIDs() {
		one, err := a.r.Compare(ctx, id, a.depth)
		if err != nil {
			return err
		}
		a.found.addShard(&one)
	}
	a.found.MySQL.Remaining = max(0, c.Total-a.found.MySQL.Claimed)
	if a.found.Redis != nil {
		a.found.Redis.Remaining = max(0, c.Total-a.found.Redis.Taken)
	}
	return a.sums(ctx)
}

// addShard adds what was found of a shard to what was found of its campaign.
func (c *Comparison) addShard(one *Comparison) {
	_, shard := models.SplitShardID(one.CampaignID)
	for _, line := range one.Differences {
		c.Differences = append(c.Differences, shardLine(shard, line))
	}
	if one.Residency != models.ResidencyNone && c.Residency != models.ResidencyLost &&
		(c.Residency == models.ResidencyNone || one.Residency != models.ResidencyEvicted) {
		c.Residency = one.Residency
	}
	c.inRedis = append(c.inRedis, one.inRedis...)
	c.parked = c.parked || one.parked
	maps.Copy(c.unbooked, one.unbooked)
	c.MySQL.Claimed += one.MySQL.Claimed
	c.MySQL.SyncedSeq += one.MySQL.SyncedSeq
	c.MySQL.Released += one.MySQL.Released
	c.MySQL.LostClaims += one.MySQL.LostClaims
	c.MySQL.Untold += one.MySQL.Untold
	c.MySQL.ParkedClaims += one.MySQL.ParkedClaims
	c.MySQL.ParkedUnits += one.MySQL.ParkedUnits
	if c.Rows != nil && one.Rows != nil {
		c.Rows.Claims += one.Rows.Claims
		c.Rows.Units += one.Rows.Units
		c.Rows.Released += one.Rows.Released
		c.Rows.Last = max(c.Rows.Last, one.Rows.Last)
	}
	switch inRedis := one.Redis; {
	case inRedis != nil:
		c.lacks[shard] = max(0, inRedis.Taken-inRedis.Total)
		c.Redis.Status = inRedis.Status
		c.Redis.Taken += inRedis.Taken
		c.Redis.Seq += inRedis.Seq
		c.Redis.Released += inRedis.Released
		c.Redis.Epoch = max(c.Redis.Epoch, inRedis.Epoch)
	default: // MySQL has all of it
		c.lacks[shard] = max(0, one.MySQL.Claimed+one.MySQL.ParkedUnits-one.MySQL.Total)
		c.Redis.Taken += one.MySQL.Claimed + one.MySQL.ParkedUnits
		c.Redis.Seq += one.MySQL.SyncedSeq + one.MySQL.ParkedClaims
		c.Redis.Released += one.MySQL.Released
	}
	addTo(&c.Backlog, one.Backlog, one.Redis == nil)
	addTo(&c.Drift, one.Drift, one.Redis == nil)
}

// addTo adds a number; one that is not known makes the sum unknown, unless it is 0 where nothing is asked of Redis.
func addTo(sum **int64, n *int64, isNone bool) {
	switch {
	case *sum == nil || n == nil && isNone:
	case n == nil:
		*sum = nil
	default:
		**sum += *n
	}
}

// sums compares the counters of a campaign with those of its lots, as of one moment, and its units with those that they have.
func (a *attempt) sums(ctx context.Context) error {
	id := a.found.CampaignID
	db := sqlstore.On(a.r.db.WithContext(ctx))
	var claimed, synced, released, units, raised int64
	for try := 1; ; try++ {
		err := db.Row("SELECT c.claimed - SUM(s.claimed), c.synced_seq - SUM(s.synced_seq), c.released_claims - SUM(s.released_claims),"+
			" c.total - SUM(s.total) - COALESCE((SELECT SUM(CASE WHEN kind = ? THEN n ELSE -n END) FROM"+
			" (SELECT kind, MAX(cumulative) AS n FROM stock_moves WHERE campaign_id = ? AND (peer > 0 OR ?) GROUP BY shard, kind, peer) m), 0)"+
			" FROM campaigns c JOIN lots s ON s.campaign_id = c.id AND s.shard > 0 WHERE c.id = ?"+
			" GROUP BY c.id, c.claimed, c.synced_seq, c.released_claims, c.total", models.EventUnitsDebited, id,
			a.snap.campaign.Kind == models.KindPacket, id). // whose total is that of all packets, with those that are withheld
			Scan(&claimed, &synced, &released, &units)
		if err == nil && units > 0 {
			raised, err = a.raised(ctx)
			units -= raised
		}
		if err != nil {
			return fmt.Errorf("reconcile: lots of %s: %w", id, err)
		}
		if units == 0 || try >= compareTries { // a change of the total is on its way to the reserve, or from it
			break
		}
		if err := sleep.For(ctx, comparePause); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		what string
		more int64
	}{{"claimed", claimed}, {"synced_seq", synced}, {"released_claims", released}} {
		if one.more != 0 {
			a.found.differf("campaigns.%s is %d more than that of all shards", one.what, one.more)
		}
	}
	if units != 0 && a.snap.campaign.Status != models.StatusClosed { // then the rows of what is in flight are pruned
		a.found.differf("total is %d units more than what the lots have and what is on its way between them", units)
		a.found.inRedis = append(a.found.inRedis, models.ShardID(id, models.ReserveLot)) // a mover compares its total, once it is loaded
	}
	if n := a.lacks(ctx); n > 0 && a.snap.campaign.Status != models.StatusClosed {
		a.found.differf("%d units were sold twice by servers that lost data: raise total by %d, or close the campaign", n, n)
	}
	return nil
}

// raised is by how many units the total was raised of which MySQL has no credit. It is 0 if the reserve is in Redis and lacks them; else
// its next load brings them, or the consumers are behind.
func (a *attempt) raised(ctx context.Context) (units int64, err error) {
	if a.snap.campaign.Kind == models.KindPacket { // its total is that of its packets
		return 0, nil
	}
	id := a.found.CampaignID
	reserve := models.ShardID(id, models.ReserveLot)
	var total, credited int64
	var residency models.Residency
	err = sqlstore.On(a.r.db.WithContext(ctx)).Row("SELECT w.total + w.lowered, COALESCE((SELECT MAX(cumulative) FROM stock_moves m"+
		" WHERE m.campaign_id = w.id AND m.shard = s.shard AND m.kind = ? AND m.peer = 0), 0), s.residency"+
		" FROM defined_lots w JOIN lots s ON s.campaign_id = w.id WHERE w.id = ? AND s.id = ?", models.EventUnitsCredited, id, reserve).
		Scan(&total, &credited, &residency)
	if err != nil {
		return 0, err
	}
	view := a.r.scripts.Shards(ctx, []string{reserve})[0]
	if residency == models.ResidencyResident && (view.Err != nil || view.In[0] < total) {
		return 0, nil //nolint:nilerr // Redis says so by itself once it answers
	}
	return total - credited, nil
}

// lacks is how many units lots have sold that they lack, beside what is on its way to them.
func (a *attempt) lacks(ctx context.Context) (n int64) {
	ids := a.snap.campaign.LotIDs()
	lots := make(map[int]lua.Transfers)
	for i, v := range a.r.scripts.Shards(ctx, ids) {
		_, lot := models.SplitShardID(ids[i])
		lots[lot] = v.Transfers
	}
	for pair, units := range lua.InFlight(lots) {
		if units > 0 && pair.To > 0 {
			a.found.lacks[pair.To] -= units
		}
	}
	for _, units := range a.found.lacks {
		n += max(0, units)
	}
	return n
}

// repairShards repairs each shard of a campaign, and then the sums of the campaign.
func (r *Reconciler) repairShards(ctx context.Context, c *models.Campaign, how RepairHow) (Repaired, error) {
	done, err := r.compareFirst(ctx, c.ID, c.LotIDs(), how)
	found := done.Found
	isAll := how.GiveUpClaims && c.Kind == models.KindPacket // a lot whose books agree may lack what its load needs
	if err != nil || found.Agrees() && !found.parked && !isAll {
		return done, err
	}
	var failed []error
	withheld, err := r.withheld(ctx, c)
	if err != nil {
		return done, err
	}
	if c.Kind == models.KindPacket {
		if err := r.restoreRows(ctx, c, how, &done); err != nil {
			return done, err
		}
	}
	var left []string // what the repair of a shard says beyond a comparison
	for _, id := range c.LotIDs() {
		_, lot := models.SplitShardID(id)
		one, err := r.Repair(ctx, id, how)
		for _, line := range one.Left.Differences {
			left = append(left, shardLine(lot, line))
		}
		done.add(&one)
		if err == nil && c.Kind == models.KindPacket { // the reserve has what no shard has
			_, loadErr := r.hydrator.Hydrate(ctx, id)
			if loadErr != nil && how.GiveUpClaims {
				p := &repair{r: r, id: id, how: how, isLoad: true}
				_, err = p.run(ctx)
				done.add(&p.done)
			}
		}
		failed = append(failed, err)
	}
	if reserve := models.ShardID(c.ID, models.ReserveLot); slices.Contains(found.inRedis, reserve) {
		_, err := r.hydrator.Hydrate(ctx, reserve)
		failed = append(failed, err)
	}
	failed = append(failed, campaigns.SumShards(ctx, r.db, c.ID), r.recordWithheld(ctx, c, withheld, &done))
	if err := errors.Join(failed...); err != nil {
		return done, err
	}
	now, err := campaigns.Read(r.db.WithContext(ctx), c.ID)
	if err == nil && counters(&now) != counters(c) {
		p := &repair{r: r, id: c.ID}
		err = p.record(ctx, RepairCampaigns, counters(c), counters(&now)+", by the sums of its shards")
		done.Steps = append(done.Steps, p.done.Steps...)
	}
	if err == nil {
		done.Left, err = r.Compare(ctx, c.ID, DepthUsers)
	}
	if err == nil && !done.Left.Agrees() {
		left = slices.DeleteFunc(left, func(line string) bool { return slices.Contains(done.Left.Differences, line) })
		done.Left.Differences = append(done.Left.Differences, left...)
	}
	return done, err
}

// restoreRows restores the rows of all lots of a packet campaign before one is loaded: none gets a packet that a user of another has.
func (r *Reconciler) restoreRows(ctx context.Context, c *models.Campaign, how RepairHow, done *Repaired) error {
	for _, id := range c.LotIDs() {
		p := &repair{r: r, id: id, how: how, isRowsOnly: true}
		_, err := p.run(ctx)
		done.add(&p.done)
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds what was done to a lot.
func (d *Repaired) add(one *Repaired) {
	d.Steps = append(d.Steps, one.Steps...)
	d.GivenUp = append(d.GivenUp, one.GivenUp...)
}

// withheld is how many packets of a campaign no lot gives away, because neither MySQL nor Redis tells which lot has them. The lots have
// debited them to the total of the campaign.
func (r *Reconciler) withheld(ctx context.Context, c *models.Campaign) (packets int64, err error) {
	if c.Kind != models.KindPacket {
		return 0, nil
	}
	err = sqlstore.On(r.db.WithContext(ctx)).Scan(&packets, "SELECT COALESCE(SUM(CASE WHEN kind = ? THEN units ELSE -units END), 0)"+
		" FROM stock_moves WHERE campaign_id = ? AND peer = 0", models.EventUnitsDebited, c.ID)
	return packets, err
}

// recordWithheld records how many packets are withheld, if these were others before the repair.
func (r *Reconciler) recordWithheld(ctx context.Context, c *models.Campaign, before int64, done *Repaired) error {
	now, err := r.withheld(ctx, c)
	if err != nil || now == before {
		return err
	}
	p := &repair{r: r, id: c.ID}
	err = p.record(ctx, RepairPackets, fmt.Sprintf("%d packets are withheld", before), fmt.Sprintf("%d packets are withheld, because neither"+
		" redis nor mysql tells which lot has them: no user gets them, and they go back to the sender when the campaign closes; add as many new"+
		" packets to give them away before", now))
	done.Steps = append(done.Steps, p.done.Steps...)
	return err
}

// shardLine is a difference of a shard as a difference of its campaign.
func shardLine(lot int, line string) string {
	if lot == models.ReserveLot {
		return "reserve: " + line
	}
	return fmt.Sprintf("shard %d: %s", lot, line)
}
