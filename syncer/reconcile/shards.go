package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// shards compares each lot of a campaign with what Redis holds of it, and the sums of the shards with the campaign.
func (a *attempt) shards(ctx context.Context) error {
	c := &a.snap.campaign
	a.found = Comparison{
		CampaignID: c.ID, Residency: models.ResidencyNone, Differences: []string{}, Backlog: new(int64), Drift: new(int64),
		Redis: &RedisFigures{Total: c.Total},
		MySQL: MySQLFigures{Total: c.Total}, // the rest is of the shards' snapshots, as what Redis holds is
	}
	if a.depth >= DepthRows {
		a.found.Rows = &RowFigures{}
	}
	for _, id := range c.ShardIDs() {
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

// sums compares the counters of a campaign with those of its shards, as of one moment, and its units with those that they have.
func (a *attempt) sums(ctx context.Context) error {
	id := a.found.CampaignID
	db := a.r.db.WithContext(ctx)
	var claimed, synced, released int64
	err := sqlstore.On(db).Row("SELECT c.claimed - SUM(s.claimed), c.synced_seq - SUM(s.synced_seq), c.released_claims - SUM(s.released_claims)"+
		" FROM campaigns c JOIN lots s ON s.campaign_id = c.id AND s.shard > 0 WHERE c.id = ?"+
		" GROUP BY c.id, c.claimed, c.synced_seq, c.released_claims", id).Scan(&claimed, &synced, &released)
	if err != nil {
		return fmt.Errorf("reconcile: shards of %s: %w", id, err)
	}
	units, err := campaigns.Excess(db, id, campaigns.WithRaises)
	for try := 1; err == nil && units[id] != 0 && try < compareTries; try++ { // a change of the total is on its way to the shards
		err = sleep.For(ctx, comparePause)
		if err == nil {
			units, err = campaigns.Excess(db, id, campaigns.WithRaises)
		}
	}
	if err != nil {
		return err
	}
	for _, one := range []struct {
		what string
		more int64
	}{{"claimed", claimed}, {"synced_seq", synced}, {"released_claims", released}} {
		if one.more != 0 {
			a.found.differf("campaigns.%s is %d more than that of all shards", one.what, one.more)
		}
	}
	if more := units[id]; more != 0 {
		a.found.differf("what the shards have and what is on its way to them is %d units more than the total: the syncer settles it", more)
	}
	return nil
}

// repairShards repairs each shard of a campaign, and then the sums of the campaign.
func (r *Reconciler) repairShards(ctx context.Context, c *models.Campaign, how RepairHow) (Repaired, error) {
	done, err := r.compareFirst(ctx, c.ID, c.ShardIDs(), how)
	found := done.Found
	if err != nil || found.Agrees() && !found.parked {
		return done, err
	}
	var failed []error
	var left []string // what the repair of a shard says beyond a comparison
	for _, id := range c.ShardIDs() {
		_, shard := models.SplitShardID(id)
		one, err := r.Repair(ctx, id, how)
		for _, line := range one.Left.Differences {
			left = append(left, shardLine(shard, line))
		}
		done.add(&one)
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

// add adds what was done to a lot.
func (d *Repaired) add(one *Repaired) {
	d.Steps = append(d.Steps, one.Steps...)
	d.GivenUp = append(d.GivenUp, one.GivenUp...)
}

// shardLine is a difference of a shard as a difference of its campaign.
func shardLine(shard int, line string) string { return fmt.Sprintf("shard %d: %s", shard, line) }
