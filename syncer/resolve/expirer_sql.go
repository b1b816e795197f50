package resolve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// heldFlush is a row of stock_flushes in whose range a hold may have ended.
type heldFlush struct {
	ID, CampaignID    string
	Shard             int
	FirstSeq, LastSeq int64
	DueMs             int64
	HoldForMs         int64
}

// openHold is a claim that is due.
type openHold struct {
	ID, CampaignID string
	Shard          int
	Seq            int64
}

func (h *openHold) lotID() string { return models.ShardID(h.CampaignID, h.Shard) }

// dueQuery reads the first due rows of each lot, those that wait longest first. The rows of one lot may be very many: it goes over a window
// of all due rows, so that a lot with few is not behind them.
func dueQuery(db sqlstore.Database) string {
	return "SELECT id, campaign_id, shard, first_seq, last_seq, due_ms, (SELECT hold_for_ms FROM definitions WHERE definitions.campaign_id = f.campaign_id) AS hold_for_ms FROM" +
		" (SELECT id, campaign_id, shard, first_seq, last_seq, due_ms," +
		" ROW_NUMBER() OVER (PARTITION BY campaign_id, shard ORDER BY due_ms, id) AS n FROM" +
		" (SELECT id, campaign_id, shard, first_seq, last_seq, due_ms FROM stock_flushes AS f" + sqlstore.ByIndex(db, "stock_flushes_due") +
		" WHERE due_ms <= ? ORDER BY due_ms, id LIMIT ?) AS due) AS f WHERE n <= ? ORDER BY due_ms, id"
}

// due reads the lots in which a hold may have ended.
func (e *Expirer) due(ctx context.Context, now time.Time) (lots []heldLot, err error) {
	var rows []heldFlush
	db := e.relay.db.WithContext(ctx)
	if err := sqlstore.On(db).Scan(&rows, dueQuery(db), now.UnixMilli(), expireWindow, expireBatch); err != nil {
		return nil, fmt.Errorf("resolve: due rows of stock_flushes: %w", err)
	}
	at := make(map[string]int)
	for i := range rows {
		id := models.ShardID(rows[i].CampaignID, rows[i].Shard)
		if _, known := at[id]; !known {
			at[id] = len(lots)
			lots = append(lots, heldLot{})
		}
		lots[at[id]].add(&rows[i], e.reach)
	}
	return lots, nil
}

// examineQuery finds the first due claims of each lot, up to share of each.
func examineQuery(db sqlstore.Database, page []heldLot, share int, now time.Time) (query string, args []any) {
	byPlace := sqlstore.ByIndex(db, "claims_place")
	parts := make([]string, len(page))
	for i := range page {
		lot := &page[i]
		f := &page[i].flushes[0]
		parts[i] = fmt.Sprintf("SELECT campaign_id, shard, id, seq"+
			" FROM (SELECT campaign_id, shard, id, seq FROM claims%s"+
			" WHERE campaign_id = ? AND shard = ? AND seq >= ? AND seq <= ? AND status = ? AND claimed_at <= ?"+
			" ORDER BY seq LIMIT ?) AS c%d", byPlace, i)
		claimedAt := now.Add(-time.Duration(f.HoldForMs) * time.Millisecond).UTC().Format(sqlstore.TimeLayout)
		args = append(args, f.CampaignID, f.Shard, lot.firstSeq, lot.lastSeq, models.ClaimClaimed, claimedAt, share)
	}
	return strings.Join(parts, " UNION ALL "), args
}

// examine finds due claims by examineQuery, those of each lot in order of seq.
func (e *Expirer) examine(ctx context.Context, page []heldLot, share int, now time.Time) (found map[string][]openHold, err error) {
	query, args := examineQuery(e.relay.db, page, share, now)
	var rows []openHold
	if err := sqlstore.On(e.relay.db.WithContext(ctx)).Scan(&rows, query, args...); err != nil {
		return nil, fmt.Errorf("resolve: due claims: %w", err)
	}
	found = make(map[string][]openHold, len(page))
	for i := range rows {
		id := rows[i].lotID()
		found[id] = append(found[id], rows[i])
	}
	for _, holds := range found {
		slices.SortFunc(holds, func(a, b openHold) int { return int(a.Seq - b.Seq) })
	}
	return found, nil
}

// openQuery finds the oldest open claim in the range of each row.
func openQuery(db sqlstore.Database, rows []heldFlush) (query string, args []any) {
	byPlace := sqlstore.ByIndex(db, "claims_place")
	parts := make([]string, len(rows))
	for i := range rows {
		f := &rows[i]
		parts[i] = fmt.Sprintf("SELECT claimed_at, ? AS id FROM (SELECT claimed_at FROM claims%s"+
			" WHERE campaign_id = ? AND shard = ? AND seq >= ? AND seq <= ? AND status = ? ORDER BY claimed_at LIMIT 1) AS c%d", byPlace, i)
		args = append(args, f.ID, f.CampaignID, f.Shard, f.FirstSeq, f.LastSeq, models.ClaimClaimed)
	}
	return strings.Join(parts, " UNION ALL "), args
}

// settle stores when the next hold ends in the range of rows in which nothing is due now. Open claims of a range only become fewer, so
// that two processes that do this at once can at most have a row examined too early.
func (e *Expirer) settle(ctx context.Context, rows []heldFlush, now time.Time) error {
	for part := range slices.Chunk(rows, expirePage) {
		query, args := openQuery(e.relay.db, part)
		var open []models.ClaimRow // the columns that are asked for
		if err := sqlstore.On(e.relay.db.WithContext(ctx)).Scan(&open, query, args...); err != nil {
			return fmt.Errorf("resolve: open claims: %w", err)
		}
		oldest := make(map[string]time.Time, len(open))
		for i := range open {
			oldest[open[i].ID] = open[i].ClaimedAt
		}
		query, args = settleQuery(part, oldest, now)
		err := e.inTx(ctx, func(tx *sqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		})
		if err != nil {
			return fmt.Errorf("resolve: note when holds end: %w", err)
		}
	}
	return nil
}

// settleQuery sets due_ms of rows by the oldest open claims in their ranges.
func settleQuery(rows []heldFlush, oldest map[string]time.Time, now time.Time) (query string, args []any) {
	due := sqlstore.Case(&args, rows, func(f *heldFlush) string { return f.ID }, func(f *heldFlush) any {
		claimedAt, isOpen := oldest[f.ID]
		if !isOpen {
			return nil
		}
		return max(claimedAt.UnixMilli()+f.HoldForMs, now.UnixMilli()+(f.LastSeq-f.FirstSeq)/examineRate)
	})
	for i := range rows {
		args = append(args, rows[i].ID)
	}
	return "UPDATE stock_flushes SET due_ms = " + due + " WHERE id IN " + sqlstore.Marks(len(rows)), args
}
