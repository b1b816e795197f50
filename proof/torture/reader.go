package torture

import (
	"context"
	"slices"
	"time"
)

// readEvery is the pause between two reads of all campaigns.
const readEvery = 50 * time.Millisecond

// readBooks reads MySQL repeatedly during faults: a campaign's rows and
// counters, with the sums waiting for a lock, must agree at all times (I6).
func (rd *round) readBooks(ctx context.Context) {
	for ctx.Err() == nil {
		for _, c := range rd.campaigns {
			if c.closing.Load() {
				continue // its rows may be in the archive
			}
			if c.shards > 1 {
				rd.readShards(ctx, c)
			}
			// a sum over several follows a load only after its counters are
			// corrected
			if c.shards == 1 || !rd.lossy {
				rd.readCampaign(ctx, c)
			}
		}
		wait(ctx, readEvery)
	}
}

// counted is the condition of a claim k whose units the counters
// include: a released one until its entry is applied.
const counted = "k.status IN ('claimed', 'redeemed') OR k.id IN (SELECT claim_id FROM outbox WHERE kind = 'release')"

// readCampaign reads counters and rows in one statement, so at one moment.
func (rd *round) readCampaign(ctx context.Context, c *campaign) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	started := time.Now()
	var total, remaining, claimed, synced, lostUnits, unitsWait, claimsWait, units, rows int64
	var open bool // a change of total is not in force in Redis: remaining follows then
	err := rd.w.db.QueryRowContext(ctx, `SELECT c.applied_version < c.version, c.total, c.remaining, c.claimed, c.synced_seq, c.lost_units,
		(SELECT COALESCE(SUM(f.units), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.id),
		(SELECT COALESCE(SUM(f.claims), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.id),
		COALESCE(SUM(IF(`+counted+`, k.quantity, 0)), 0), COUNT(k.id)
		FROM campaigns c LEFT JOIN claims k ON k.campaign_id = c.id WHERE c.id = ? GROUP BY c.id`, c.id).
		Scan(&open, &total, &remaining, &claimed, &synced, &lostUnits, &unitsWait, &claimsWait, &units, &rows)
	if err != nil {
		return // nothing was read
	}
	rd.report.BooksRead++
	remains := func(t int64) bool { return remaining == max(0, t-claimed-lostUnits) }
	agrees := open && remaining >= max(0, total-claimed-lostUnits) ||
		slices.ContainsFunc(append(c.may(&c.totals, started, time.Now()), total), remains)
	if !agrees || claimed+unitsWait != units || synced+claimsWait != rows {
		rd.brokenf("I6: %s shows total %d, remaining %d, claimed %d, synced_seq %d, lost_units %d, and %d claims of %d units that wait,"+
			" beside %d rows of %d units", c.id, total, remaining, claimed, synced, lostUnits, claimsWait, unitsWait, rows, units)
	}
	if rd.undone() {
		// releases are missing in MySQL until their entries are applied;
		// the final check does not allow that
		return
	}
	if most := c.may(&c.totals, rd.open, time.Now()); units > maxOf(most) {
		rd.brokenf("I1: %s has rows of %d units, its total was %v", c.id, units, most)
	}
}

// readShards reads counters and rows of each shard of a campaign
// in one statement.
func (rd *round) readShards(ctx context.Context, c *campaign) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A broken connection ends the reading.
	_ = rd.w.each(ctx, `SELECT c.id, c.claimed, c.synced_seq,
		(SELECT COALESCE(SUM(f.units), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.campaign_id AND f.shard = c.shard),
		(SELECT COALESCE(SUM(f.claims), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.campaign_id AND f.shard = c.shard),
		COALESCE(SUM(IF(`+counted+`, k.quantity, 0)), 0), COUNT(k.id)
		FROM campaign_shards c LEFT JOIN claims k ON k.campaign_id = c.campaign_id AND k.shard = c.shard
		WHERE c.campaign_id = ? GROUP BY c.id`, []any{c.id}, func(scan func(...any) error) error {
		var id string
		var claimed, synced, unitsWait, claimsWait, units, rows int64
		if err := scan(&id, &claimed, &synced, &unitsWait, &claimsWait, &units, &rows); err != nil {
			return err
		}
		rd.report.BooksRead++
		if claimed+unitsWait != units || synced+claimsWait != rows {
			rd.brokenf("I6: %s shows claimed %d, synced_seq %d, and %d claims of %d units that wait, beside %d rows of %d units",
				id, claimed, synced, claimsWait, unitsWait, rows, units)
		}
		return nil
	})
}

func maxOf(values []int64) (most int64) {
	for _, v := range values {
		most = max(most, v)
	}
	return most
}
