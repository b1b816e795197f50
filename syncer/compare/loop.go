package compare

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/stored"

	"github.com/google/uuid"
)

const (
	movedMax    = 20          // campaigns of a round that moved since the last one
	stillMax    = 5           // of the others, by rotation
	countEvery  = time.Minute // between two counts of rows: a million takes MySQL about a second
	recordEvery = time.Minute // between two records of an unchanged comparison
	recordedMax = 1000        // reconciliations kept of a campaign; pruned at twice as many
)

type loop struct {
	flushed string // the newest flush at the last round
	last    string // the last campaign of the rotation
	past    map[string]*past
}

type past struct {
	row       stored.Reconciliation // recorded last
	countedAt time.Time
	differs   bool
	written   int
	sums      sums
}

// Round compares the campaigns that moved and some of the others, and
// records what is new. It returns how many of those compared since this
// process leads differ. A failure does not stop the others.
func (c *Comparer) Round(ctx context.Context) (differ int, err error) {
	ids, err := c.due(ctx)
	if err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	var failed []error
	for _, id := range ids {
		err := c.compareNext(ctx, id)
		if errors.Is(err, models.ErrNotFound) {
			delete(c.loop.past, id)
			continue
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	var all sums
	for _, p := range c.loop.past {
		all.drift += p.sums.drift
		all.differ += p.sums.differ
		all.backlog += p.sums.backlog
	}
	c.metrics.set(all)
	return int(all.differ), errors.Join(failed...)
}

// due returns campaigns with flushes since the
// last round, different ones, and some others.
func (c *Comparer) due(ctx context.Context) ([]string, error) {
	db := c.db.WithContext(ctx)
	due := make(map[string]bool)
	add := func(ids []string) {
		for _, id := range ids {
			due[id] = true
		}
	}
	var newest string
	if err := db.Raw("SELECT COALESCE(MAX(id), '') FROM stock_flushes").Scan(&newest).Error; err != nil {
		return nil, err
	}
	if c.loop.flushed != "" && newest != c.loop.flushed {
		var moved []string
		err := db.Raw("SELECT DISTINCT campaign_id FROM stock_flushes WHERE id > ? LIMIT ?", c.loop.flushed, movedMax).
			Scan(&moved).Error
		if err != nil {
			return nil, err
		}
		add(moved)
	}
	c.loop.flushed = newest
	for id, p := range c.loop.past {
		if (p.differs || p.sums.backlog > 0) && len(due) < 2*movedMax {
			due[id] = true
		}
	}
	var still []string
	for range 2 { // start over at the end
		err := db.Raw("SELECT id FROM campaigns WHERE id > ? AND (residency = ? OR shards > 1)"+
			" ORDER BY id LIMIT ?", c.loop.last, models.ResidencyResident, stillMax).Scan(&still).Error
		if err != nil {
			return nil, err
		}
		if len(still) > 0 {
			c.loop.last = still[len(still)-1]
			break
		}
		c.loop.last = ""
	}
	add(still)
	return slices.Sorted(maps.Keys(due)), nil
}

func (c *Comparer) compareNext(ctx context.Context, id string) error {
	p := c.loop.past[id]
	if p == nil {
		p = &past{}
		c.loop.past[id] = p
	}
	countsRows := p.differs || time.Since(p.countedAt) >= countEvery
	found, err := c.compare(ctx, id, countsRows)
	if err != nil {
		return err
	}
	if countsRows {
		p.countedAt = time.Now()
	}
	if countsRows || !found.Agrees() {
		c.learn(ctx, p, &found)
	}
	p.sums.backlog = valueOf(found.Backlog)
	row := rowOf(&found)
	if !sameFigures(row, p.row) || row.At.Sub(p.row.At) >= recordEvery {
		if err := c.insert(ctx, []stored.Reconciliation{row}); err != nil {
			return err
		}
		p.row = row
		p.written++
	}
	if p.written != 1 && p.written < recordedMax {
		return nil
	}
	p.written = 2
	return c.prune(ctx, id)
}

func (c *Comparer) learn(ctx context.Context, p *past, found *Comparison) {
	if !found.Agrees() && !p.differs {
		c.log.LogAttrs(ctx, slog.LevelError, "the books differ: `dibs reconcile --repair` puts them right",
			slog.String("campaign_id", found.CampaignID), slog.Any("differences", found.Differences))
	}
	if found.Agrees() && p.differs {
		c.log.LogAttrs(ctx, slog.LevelInfo, "the books agree again", slog.String("campaign_id", found.CampaignID))
	}
	p.differs = !found.Agrees()
	p.sums.differ = 0
	p.sums.drift = 0
	if p.differs {
		p.sums.differ = 1
		p.sums.drift = max(valueOf(found.Drift), -valueOf(found.Drift))
	}
}

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Record stores requested comparisons.
func (c *Comparer) Record(ctx context.Context, found ...*Comparison) error {
	rows := make([]stored.Reconciliation, len(found))
	for i := range found {
		rows[i] = rowOf(found[i])
	}
	return c.insert(ctx, rows)
}

func rowOf(found *Comparison) stored.Reconciliation {
	row := stored.Reconciliation{
		CampaignID: found.CampaignID, MySQLRemaining: found.MySQL.Remaining, Backlog: found.Backlog, Drift: found.Drift,
		At: sqlstore.Now(),
	}
	if found.Redis != nil {
		row.RedisRemaining = &found.Redis.Remaining
	}
	return row
}

func sameFigures(a, b stored.Reconciliation) bool {
	b.ID = a.ID
	b.At = a.At
	return reflect.DeepEqual(a, b)
}

func (c *Comparer) insert(ctx context.Context, rows []stored.Reconciliation) error {
	if len(rows) == 0 {
		return nil
	}
	for i := range rows {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("compare: %w", err)
		}
		rows[i].ID = id.String()
	}
	if err := c.db.WithContext(ctx).CreateInBatches(rows, sqlstore.PageSize).Error; err != nil {
		return fmt.Errorf("compare: record what was found: %w", err)
	}
	return nil
}

func (c *Comparer) prune(ctx context.Context, id string) error {
	db := c.db.WithContext(ctx)
	var oldest []string // of those that are kept
	err := db.Raw("SELECT id FROM reconciliations WHERE campaign_id = ?"+
		" ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?", id, recordedMax-1).Scan(&oldest).Error
	if err == nil && len(oldest) > 0 {
		err = db.Exec("DELETE FROM reconciliations WHERE campaign_id = ? AND id < ?", id, oldest[0]).Error
	}
	if err != nil {
		return fmt.Errorf("compare: prune reconciliations: %w", err)
	}
	return nil
}
