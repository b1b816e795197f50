package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

const (
	flushesKept = 90 * 24 * time.Hour // rows of stock_flushes; the newest of a campaign stays for good
	movesKept   = 7 * 24 * time.Hour  // rows of stock_moves of a campaign that ended

	repairsKept = 1_000 // rows of repairs, a campaign

	prunePage  = 1_000            // rows that one statement deletes
	pruneTime  = 40 * time.Second // most that a round spends on one table; the next round goes on
	prunePause = 1                // after a page the pruner waits so many times as long as it took: flushes come first
)

// Pruner deletes rows that are written for people and that nothing works by any more. A flush moves the books by its own rows
// of stock_flushes, in the transaction that writes them; nothing adds them up later, and stock_watch shows the newest. A row with a due
// time stays: the expirer works by it. Prune is
// for one goroutine; several processes at once do no harm.
type Pruner struct {
	db          *gorm.DB
	flushesDone string // the id that the last round ended with; "" is from the beginning

	flushesKept time.Duration // is the constant, but in tests
	repairsKept int           // is the constant, but in tests
	time        time.Duration // is pruneTime, but in tests
}

// NewPruner makes a pruner.
func NewPruner(db *gorm.DB) *Pruner {
	return &Pruner{db: db, flushesKept: flushesKept, repairsKept: repairsKept, time: pruneTime}
}

// Prune deletes what is older or more than is kept, page by page until it is
// done or its time is over, and returns how many rows went. A table that fails does
// not stop the others.
func (p *Pruner) Prune(ctx context.Context) (pruned int, err error) {
	var failed []error
	for _, table := range []struct {
		name string
		page func(ctx context.Context) (n int, more bool, err error)
	}{{"stock_flushes", p.flushes}, {"stock_moves", p.moves}, {"repairs", p.repairs}} {
		n, err := p.untilDone(ctx, table.page)
		pruned += n
		if err != nil {
			failed = append(failed, fmt.Errorf("retention: prune %s: %w", table.name, err))
		}
	}
	return pruned, errors.Join(failed...)
}

// untilDone deletes page by page until no more is left, or the time of a table is over.
func (p *Pruner) untilDone(ctx context.Context, page func(ctx context.Context) (n int, more bool, err error)) (pruned int, err error) {
	for until := time.Now().Add(p.time); ; {
		started := time.Now()
		n, more, err := page(ctx)
		pruned += n
		if err != nil || !more || time.Now().After(until) {
			return pruned, err
		}
		if err := sleep.For(ctx, prunePause*time.Since(started)); err != nil {
			return pruned, err
		}
	}
}

// flushes deletes a page of old rows. It goes by the ids, which sort by time: rows have no other key by time alone. It goes on where
// the page before ended, because rows that stay for good are met again and again.
func (p *Pruner) flushes(ctx context.Context) (n int, more bool, err error) {
	var page []models.StockFlush
	err = sqlstore.On(p.db.WithContext(ctx)).Scan(&page,
		"SELECT id, campaign_id FROM stock_flushes WHERE id > ? AND id < ? AND waiting IS NULL ORDER BY id LIMIT ?",
		p.flushesDone, sqlstore.FirstIDAt(sqlstore.Now().Add(-p.flushesKept)), prunePage)
	if err == nil {
		n, err = p.flushPage(ctx, page)
	}
	if err != nil {
		return n, false, err
	}
	if len(page) < prunePage {
		p.flushesDone = ""
		return n, false, nil
	}
	p.flushesDone = page[len(page)-1].ID
	return n, true, nil
}

// flushPage deletes the rows of a page that are not the newest of their campaign.
func (p *Pruner) flushPage(ctx context.Context, page []models.StockFlush) (pruned int, err error) {
	if len(page) == 0 {
		return 0, nil
	}
	var ids, campaigns, old []string
	for i := range page {
		ids = append(ids, page[i].ID)
		campaigns = append(campaigns, page[i].CampaignID)
	}
	slices.Sort(campaigns)
	db := p.db.WithContext(ctx)
	err = sqlstore.On(db).Scan(&old,
		"SELECT f.id FROM (SELECT campaign_id, MAX(flushed_at) AS newest FROM stock_flushes WHERE campaign_id IN ?"+
			" GROUP BY campaign_id) m JOIN stock_flushes f ON f.campaign_id = m.campaign_id WHERE f.id IN ? AND f.flushed_at < m.newest",
		slices.Compact(campaigns), ids)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	changed, err := sqlstore.On(db).Exec("DELETE FROM stock_flushes WHERE id IN ?", old)
	return int(changed), err
}

// moves deletes a page of the moves of a campaign that ended long ago.
func (p *Pruner) moves(ctx context.Context) (n int, more bool, err error) {
	db := sqlstore.On(p.db.WithContext(ctx))
	var ended []string
	err = db.Scan(&ended, "SELECT campaign_id FROM definitions WHERE shards > 1 AND closed_told_at < ?"+
		" AND EXISTS (SELECT 1 FROM stock_moves m WHERE m.campaign_id = definitions.campaign_id) LIMIT 1", sqlstore.Now().Add(-movesKept))
	if err != nil || len(ended) == 0 {
		return 0, false, err
	}
	var page []string
	err = db.Scan(&page, "SELECT id FROM stock_moves WHERE campaign_id = ? LIMIT ?", ended[0], prunePage)
	if err != nil || len(page) == 0 {
		return 0, false, err
	}
	changed, err := db.Exec("DELETE FROM stock_moves WHERE id IN ?", page)
	return int(changed), true, err
}

// repairs deletes all but the newest rows of a page of campaigns.
func (p *Pruner) repairs(ctx context.Context) (n int, more bool, err error) {
	db := p.db.WithContext(ctx)
	var many []string
	err = sqlstore.On(db).Scan(&many, "SELECT campaign_id FROM repairs GROUP BY campaign_id HAVING COUNT(*) > ? LIMIT ?",
		p.repairsKept, prunePage)
	for _, id := range many {
		var oldest string // that is kept
		err = sqlstore.On(db).Scan(&oldest, "SELECT id FROM repairs WHERE campaign_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?",
			id, p.repairsKept-1)
		if err != nil {
			return n, false, err
		}
		changed, err := sqlstore.On(db).Exec("DELETE FROM repairs WHERE campaign_id = ? AND id < ?", id, oldest)
		if err != nil {
			return n, false, err
		}
		n += int(changed)
	}
	return n, len(many) == prunePage, err
}
