package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models/stored"

	"gorm.io/gorm"
)

const (
	flushesKept = 90 * 24 * time.Hour // rows of stock_flushes; the newest of a campaign stays
	movesKept   = 7 * 24 * time.Hour  // rows of stock_moves of an ended campaign
	repairsKept = 1_000               // rows of repairs of a campaign
	prunePage   = 1_000               // rows of a statement
	pruneTime   = 40 * time.Second    // of a table in a round
	prunePause  = 1                   // pause after a page, times its duration: flushes come first
)

// Pruner deletes rows that only people read. A flush uses
// its rows of stock_flushes only in its own transaction;
// stock_watch shows the newest. A waiting row stays. Prune
// serves one goroutine; several processes do no harm.
type Pruner struct {
	db          *gorm.DB
	flushesDone string // the last id of the last round; "" starts over

	flushesKept time.Duration // the constant, except in tests
	repairsKept int           // the constant, except in tests
	time        time.Duration // pruneTime, except in tests
}

// NewPruner returns a pruner of a database.
func NewPruner(db *gorm.DB) *Pruner {
	return &Pruner{db: db, flushesKept: flushesKept, repairsKept: repairsKept, time: pruneTime}
}

// Prune deletes old rows page by page, within bounds of time, and
// returns how many. A table that fails does not stop the others.
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

func (p *Pruner) untilDone(
	ctx context.Context, page func(ctx context.Context) (n int, more bool, err error),
) (pruned int, err error) {
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

// flushes deletes a page of old rows, by id, as ids sort by time. It
// starts after the last page, or it would keep finding rows that stay.
func (p *Pruner) flushes(ctx context.Context) (n int, more bool, err error) {
	var page []stored.StockFlush
	err = p.db.WithContext(ctx).Raw("SELECT id, campaign_id FROM stock_flushes WHERE id > ? AND id < ? AND waiting "+
		"IS NULL ORDER BY id LIMIT ?",
		p.flushesDone, sqlstore.FirstIDAt(sqlstore.Now().Add(-p.flushesKept)), prunePage).Scan(&page).Error
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

func (p *Pruner) flushPage(ctx context.Context, page []stored.StockFlush) (pruned int, err error) {
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
	err = db.Raw("SELECT f.id FROM (SELECT campaign_id, MAX(flushed_at) AS newest FROM stock_flushes"+
		" WHERE campaign_id IN ? GROUP BY campaign_id) m JOIN stock_flushes f ON f.campaign_id = m.campaign_id"+
		" WHERE f.id IN ? AND f.flushed_at < m.newest",
		slices.Compact(campaigns), ids).Scan(&old).Error
	if err != nil || len(old) == 0 {
		return 0, err
	}
	done := db.Exec("DELETE FROM stock_flushes WHERE id IN ?", old)
	return int(done.RowsAffected), done.Error
}

func (p *Pruner) moves(ctx context.Context) (n int, more bool, err error) {
	db := p.db.WithContext(ctx)
	var ended []string
	err = db.Raw("SELECT campaign_id FROM definitions WHERE shards > 1 AND closed_told_at < ? AND EXISTS"+
		" (SELECT 1 FROM stock_moves m WHERE m.campaign_id = definitions.campaign_id) LIMIT 1", sqlstore.Now().Add(-movesKept)).
		Scan(&ended).Error
	if err != nil || len(ended) == 0 {
		return 0, false, err
	}
	var page []string
	err = db.Raw("SELECT id FROM stock_moves WHERE campaign_id = ? LIMIT ?", ended[0], prunePage).Scan(&page).Error
	if err != nil || len(page) == 0 {
		return 0, false, err
	}
	done := db.Exec("DELETE FROM stock_moves WHERE id IN ?", page)
	return int(done.RowsAffected), true, done.Error
}

func (p *Pruner) repairs(ctx context.Context) (n int, more bool, err error) {
	db := p.db.WithContext(ctx)
	var many []string
	err = db.Raw("SELECT campaign_id FROM repairs GROUP BY campaign_id HAVING COUNT(*) > ? LIMIT ?",
		p.repairsKept, prunePage).Scan(&many).Error
	for _, id := range many {
		var oldest string // of those that are kept
		err = db.Raw("SELECT id FROM repairs WHERE campaign_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?",
			id, p.repairsKept-1).Scan(&oldest).Error
		if err != nil {
			return n, false, err
		}
		done := db.Exec("DELETE FROM repairs WHERE campaign_id = ? AND id < ?", id, oldest)
		if done.Error != nil {
			return n, false, done.Error
		}
		n += int(done.RowsAffected)
	}
	return n, len(many) == prunePage, err
}
