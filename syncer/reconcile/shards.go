package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// shards compares each shard of a campaign with what Redis holds of it, and the sums of the shards with the campaign.
func (l *look) shards(ctx context.Context) error {
	c := &l.snap.campaign
	l.found = Comparison{
		CampaignID: c.ID, Residency: models.ResidencyNone, Differences: []string{}, Backlog: new(int64), Drift: new(int64),
		Redis: &RedisFigures{Total: c.Total},
		MySQL: MySQLFigures{Total: c.Total}, // the rest is of the shards' snapshots, as what Redis holds is
	}
	if l.depth >= DepthRows {
		l.found.Rows = &RowFigures{}
	}
	for _, id := range c.ShardIDs() {
		one, err := l.r.Compare(ctx, id, l.depth)
		if err != nil {
			return err
		}
		l.found.addShard(&one)
	}
	l.found.MySQL.Remaining = max(0, c.Total-l.found.MySQL.Claimed)
	if l.found.Redis != nil {
		l.found.Redis.Remaining = max(0, c.Total-l.found.Redis.Taken)
	}
	return l.sums(ctx)
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
	c.inRedis = c.inRedis || one.inRedis
	c.parked = c.parked || one.parked
	c.wentBack = append(c.wentBack, one.wentBack...)
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
		c.Redis.Status = inRedis.Status
		c.Redis.Taken += inRedis.Taken
		c.Redis.Seq += inRedis.Seq
		c.Redis.Released += inRedis.Released
		c.Redis.Epoch = max(c.Redis.Epoch, inRedis.Epoch)
	default: // MySQL has all of it
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

// sums compares the counters of a campaign with those of its shards, as of one moment.
func (l *look) sums(ctx context.Context) error {
	id := l.found.CampaignID
	var claimed, synced, released, units, reserve int64
	err := sqlstore.On(l.r.db.WithContext(ctx)).Row("SELECT c.claimed - SUM(s.claimed), c.synced_seq - SUM(s.synced_seq),"+
		" c.released_claims - SUM(s.released_claims), c.total - c.reserve - SUM(s.total), c.reserve"+
		" FROM campaigns c JOIN campaign_shards s ON s.campaign_id = c.id WHERE c.id = ?"+
		" GROUP BY c.id, c.claimed, c.synced_seq, c.released_claims, c.total, c.reserve", id).Scan(&claimed, &synced, &released, &units, &reserve)
	if err != nil {
		return fmt.Errorf("reconcile: shards of %s: %w", id, err)
	}
	for _, one := range []struct {
		what string
		more int64
	}{{"claimed", claimed}, {"synced_seq", synced}, {"released_claims", released}} {
		if one.more != 0 {
			l.found.differf("campaigns.%s is %d more than that of all shards", one.what, one.more)
		}
	}
	if units != 0 {
		l.found.differf("total is %d units more than the reserve and what the shards have on loan", units)
	}
	if reserve < 0 && l.snap.campaign.Status != models.StatusClosed {
		l.found.differf("%d units were sold twice by servers that lost data: raise total by %d, or close the campaign", -reserve, -reserve)
	}
	return l.undealt(ctx)
}

// undealt compares the packets of a campaign with its total, and those that no shard has with its reserve, as of one moment.
func (l *look) undealt(ctx context.Context) error {
	c := &l.snap.campaign
	if c.Kind != models.KindPacket || l.depth < DepthRows {
		return nil
	}
	var total, reserve, taken int64
	err := sqlstore.On(l.r.db.WithContext(ctx)).Row("SELECT c.total - COUNT(p.id), c.reserve - COUNT(CASE WHEN p.shard = 0 THEN 1 END),"+
		" COUNT(CASE WHEN p.shard = 0 THEN p.claim_id END) FROM campaigns c LEFT JOIN packets p ON p.campaign_id = c.id WHERE c.id = ?"+
		" GROUP BY c.id, c.total, c.reserve", c.ID).Scan(&total, &reserve, &taken)
	if err != nil {
		return fmt.Errorf("reconcile: packets of %s: %w", c.ID, err)
	}
	if total != 0 {
		l.found.differf("campaigns.total is %d more than there are rows of packets", total)
	}
	if reserve != 0 {
		l.found.differf("the reserve is %d more than there are rows of packets that no shard has", reserve)
	}
	if taken != 0 {
		l.found.differf("%d packets have owners and were dealt to no shard", taken)
	}
	return nil
}

// repairShards repairs each shard of a campaign, and then the sums of the campaign.
func (r *Reconciler) repairShards(ctx context.Context, c *models.Campaign, how RepairHow) (Repaired, error) {
	found, err := r.Compare(ctx, c.ID, DepthUsers)
	done := Repaired{Found: found, Left: found, Steps: []models.Repair{}}
	if err != nil || found.Agrees() && !found.parked {
		return done, err
	}
	var failed []error
	var left []string // what the repair of a shard says beyond a comparison
	for i, id := range c.ShardIDs() {
		one, err := r.Repair(ctx, id, how)
		for _, line := range one.Left.Differences {
			left = append(left, shardLine(i+1, line))
		}
		done.Steps = append(done.Steps, one.Steps...)
		done.GivenUp = append(done.GivenUp, one.GivenUp...)
		failed = append(failed, err)
	}
	failed = append(failed, campaigns.SumShards(ctx, r.db, c.ID))
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

// shardLine is a difference of a shard as a difference of its campaign.
func shardLine(shard int, line string) string { return fmt.Sprintf("shard %d: %s", shard, line) }
