package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// idSlack is by how much the time in a claim's id, by the clock of the process that took it, may differ from that of Redis.
const idSlack = 24 * time.Hour

// Totals are the claims that were accepted in a span of time, whatever became of them since. They are final once they are complete.
type Totals struct {
	Day      string      `json:"day"`
	TimeZone string      `json:"time_zone"`
	From     models.Time `json:"from"` // by the time of claims, which is Redis'
	To       models.Time `json:"to"`   // the first moment that is no part of it

	Complete    bool        `json:"complete"`
	Why         []string    `json:"why"`          // it is not complete
	SyncedUntil models.Time `json:"synced_until"` // each claim of before has its row, or is named in why

	Campaigns []CampaignTotals `json:"campaigns"`
	Sums      []CurrencyTotals `json:"sums"` // of the campaigns, by currency
}

// CurrencyTotals are figures of one currency; "" is none.
type CurrencyTotals struct {
	Currency string `json:"currency"`
	Claims   int64  `json:"claims"`
	Units    int64  `json:"units"`
	Amount   int64  `json:"amount"` // minor units
}

// CampaignTotals are the figures of a campaign.
type CampaignTotals struct {
	CampaignID string `json:"campaign_id"`
	CurrencyTotals

	Shards []ShardTotals `json:"shards"`
}

// ShardTotals says which claims of a shard these are.
type ShardTotals struct {
	Shard    int   `json:"shard"`
	Claims   int64 `json:"claims"`
	FirstSeq int64 `json:"first_seq"`
	LastSeq  int64 `json:"last_seq"`
}

// Totals adds up the claims of a day in a time zone. What is not in MySQL yet is not in the figures, and makes them incomplete. Errors:
// those of lua.Scripts and of the database.
func (r *Reconciler) Totals(ctx context.Context, day time.Time, zone *time.Location) (*Totals, error) {
	from := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	to := time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, zone)
	t := &Totals{
		Day: day.Format(time.DateOnly), TimeZone: zone.String(), From: models.NewTime(from), To: models.NewTime(to), Why: []string{},
		Campaigns: []CampaignTotals{}, Sums: []CurrencyTotals{},
	}
	if err := r.syncedUntil(ctx, t); err != nil { // before the rows are read: each of these claims has its row then
		return nil, fmt.Errorf("reconcile: totals: %w", err)
	}
	err := sqlstore.InSnapshot(ctx, r.db, func(tx *sqlstore.Tx) error {
		if err := t.missing(ctx, tx); err != nil {
			return err
		}
		return t.read(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("reconcile: totals: %w", err)
	}
	t.Complete = len(t.Why) == 0
	return t, nil
}

// syncedUntil finds out up to which moment every claim of the streams is acknowledged, and so in MySQL.
func (r *Reconciler) syncedUntil(ctx context.Context, t *Totals) error {
	now, err := r.scripts.Now(ctx)
	if err != nil {
		return err
	}
	t.SyncedUntil = models.NewTime(now)
	if now.Before(t.To.Time) {
		t.Why = append(t.Why, "the day is not over")
	}
	for p := range r.scripts.Partitions() {
		unread, err := r.scripts.Unread(ctx, p, models.GroupSyncer)
		if err != nil {
			return err
		}
		next, err := r.scripts.Entries(ctx, p, unread.First(), 1)
		if err != nil {
			return err
		}
		if len(next) == 0 {
			continue
		}
		at := models.TimeFromMs(int64(next[0].ID.Ms))
		if at.Before(t.SyncedUntil.Time) {
			t.SyncedUntil = at
		}
		if at.Before(t.To.Time) {
			t.Why = append(t.Why, fmt.Sprintf("partition %d: events from %s on are not in mysql yet", p, at.Format(models.TimeLayout)))
		}
	}
	return nil
}

// missing says which claims can't be in the figures.
func (t *Totals) missing(ctx context.Context, tx *sqlstore.Tx) error {
	for _, one := range []struct {
		words, query string
		args         []any
	}{
		{"%d events are parked: see dibs reconcile", "SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NULL", nil},
		{"%d campaigns are lost in redis, and claims of them may be missing: see dibs reconcile",
			"SELECT COUNT(*) FROM lots WHERE residency = 'lost'", nil},
		{"%d claims of campaigns of that day were archived to files",
			"SELECT COALESCE(SUM(k.archived_claims - (SELECT COUNT(*) FROM claims_archive a WHERE a.campaign_id = k.id)), 0)" +
				" FROM campaigns k WHERE k.archived_claims > 0 AND k.created_at < ? AND k.closed_told_at >= ?", t.span()},
	} {
		var n int64
		if err := tx.QueryRowContext(ctx, one.query, one.args...).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			t.Why = append(t.Why, fmt.Sprintf(one.words, n))
		}
	}
	return nil
}

// span is the end and the beginning, for campaigns that there were in between.
func (t *Totals) span() []any {
	return []any{t.To.UTC().Format(sqlstore.TimeLayout), t.From.UTC().Format(sqlstore.TimeLayout)}
}

// selectTotals goes by the ids of claims, which begin with the time, and by campaign in the archive; never over all claims.
const selectTotals = "SELECT campaign_id, currency, shard, COUNT(*), SUM(quantity), SUM(COALESCE(amount, 0)), MIN(seq), MAX(seq) FROM (" +
	"SELECT c.campaign_id, k.currency, c.shard, c.quantity, c.amount, c.seq FROM claims c JOIN campaigns k ON k.id = c.campaign_id" +
	" WHERE c.id >= ? AND c.id < ? AND c.claimed_at >= ? AND c.claimed_at < ?" +
	" UNION ALL SELECT a.campaign_id, k.currency, a.shard, a.quantity, a.amount, a.seq" +
	" FROM campaigns k JOIN claims_archive a ON a.campaign_id = k.id" +
	" WHERE k.archived_claims > 0 AND k.created_at < ? AND k.closed_told_at >= ? AND a.claimed_at >= ? AND a.claimed_at < ?" +
	") t GROUP BY campaign_id, currency, shard ORDER BY campaign_id, shard"

func (t *Totals) read(ctx context.Context, tx *sqlstore.Tx) error {
	span := t.span()
	args := []any{
		sqlstore.FirstIDAt(t.From.Add(-idSlack)), sqlstore.FirstIDAt(t.To.Add(idSlack)), span[1], span[0], span[0], span[1], span[1], span[0],
	}
	sums := make(map[string]*CurrencyTotals)
	err := sqlstore.ScanAll(ctx, tx, selectTotals, args, func(scan func(...any) error) error {
		var id string
		var one CurrencyTotals
		var shard ShardTotals
		if err := scan(&id, &one.Currency, &shard.Shard, &shard.Claims, &one.Units, &one.Amount, &shard.FirstSeq, &shard.LastSeq); err != nil {
			return err
		}
		one.Claims = shard.Claims
		if n := len(t.Campaigns); n == 0 || t.Campaigns[n-1].CampaignID != id {
			t.Campaigns = append(t.Campaigns, CampaignTotals{CampaignID: id, CurrencyTotals: CurrencyTotals{Currency: one.Currency}})
		}
		c := &t.Campaigns[len(t.Campaigns)-1]
		c.add(&one)
		c.Shards = append(c.Shards, shard)
		if sums[one.Currency] == nil {
			sums[one.Currency] = &CurrencyTotals{Currency: one.Currency}
		}
		sums[one.Currency].add(&one)
		return nil
	})
	for _, sum := range sums {
		t.Sums = append(t.Sums, *sum)
	}
	slices.SortFunc(t.Sums, func(a, b CurrencyTotals) int { return strings.Compare(a.Currency, b.Currency) })
	return err
}

func (c *CurrencyTotals) add(more *CurrencyTotals) {
	c.Claims += more.Claims
	c.Units += more.Units
	c.Amount += more.Amount
}
