package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/resolve"

	"gorm.io/gorm"
)

// Defaults of PrunerConfig.
const (
	DefaultFlushesKept = 7 * 24 * time.Hour
	DefaultRepairsKept = 1_000
)

// PrunerConfig is how a Pruner works. DB is required.
type PrunerConfig struct {
	DB *gorm.DB

	FlushesKept time.Duration // how long rows of stock_flushes stay; the newest of a campaign stays for good
	RepairsKept int           // rows of repairs that stay of a campaign
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c PrunerConfig) WithDefaults() PrunerConfig {
	sqlstore.OrDefault(&c.FlushesKept, DefaultFlushesKept)
	sqlstore.OrDefault(&c.RepairsKept, DefaultRepairsKept)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c PrunerConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.FlushesKept < time.Hour: // a flush reads its own rows before it commits
		return fmt.Errorf("%w: FlushesKept must be at least 1h", sqlstore.ErrConfig)
	case c.RepairsKept < 1:
		return fmt.Errorf("%w: RepairsKept must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Pruner takes away rows that are written for people and that nothing works by. A flush moves the books by its own rows of
// stock_flushes, in the transaction that writes them; nobody adds them up later, and stock_watch shows the newest. It is for
// one goroutine; several processes at once are no harm.
type Pruner struct {
	cfg         PrunerConfig
	flushesDone string // the id that the last round ended with; "" is from the beginning
}

// NewPruner checks cfg and makes a pruner.
func NewPruner(cfg PrunerConfig) (*Pruner, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Pruner{cfg: cfg}, nil
}

// Prune takes away what is older or more than is kept, in bounded batches, and returns how many rows went.
func (p *Pruner) Prune(ctx context.Context) (pruned int, err error) {
	flushes, err := p.flushes(ctx)
	if err != nil {
		err = fmt.Errorf("syncer: prune stock_flushes: %w", err)
	}
	repairs, repairsErr := p.repairs(ctx)
	if repairsErr != nil {
		err = errors.Join(err, fmt.Errorf("syncer: prune repairs: %w", repairsErr))
	}
	return flushes + repairs, err
}

// flushes goes by the ids, which sort by time: rows have no other key by time alone. It goes on where the last round ended, because
// rows that stay for good are met again and again.
func (p *Pruner) flushes(ctx context.Context) (pruned int, err error) {
	before := firstIDAt(sqlstore.Now().Add(-p.cfg.FlushesKept))
	for range resolve.PrunesMost {
		var page []models.StockFlush
		err := p.cfg.DB.WithContext(ctx).Raw("SELECT id, campaign_id FROM stock_flushes WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
			p.flushesDone, before, resolve.PrunePage).Scan(&page).Error
		if err != nil {
			return pruned, err
		}
		n, err := p.flushPage(ctx, page)
		pruned += n
		if err != nil {
			return pruned, err
		}
		if len(page) < resolve.PrunePage {
			p.flushesDone = ""
			break
		}
		p.flushesDone = page[len(page)-1].ID
	}
	return pruned, nil
}

// flushPage takes away the rows of a page that are not the newest of their campaign.
func (p *Pruner) flushPage(ctx context.Context, page []models.StockFlush) (pruned int, err error) {
	if len(page) == 0 {
		return 0, nil
	}
	var ids, campaigns, old []string
	for i := range page {
		ids, campaigns = append(ids, page[i].ID), append(campaigns, page[i].CampaignID)
	}
	slices.Sort(campaigns)
	db := p.cfg.DB.WithContext(ctx)
	err = db.Raw("SELECT f.id FROM (SELECT campaign_id, MAX(flushed_at) AS newest FROM stock_flushes WHERE campaign_id IN ?"+
		" GROUP BY campaign_id) m JOIN stock_flushes f ON f.campaign_id = m.campaign_id WHERE f.id IN ? AND f.flushed_at < m.newest",
		slices.Compact(campaigns), ids).Scan(&old).Error
	if err != nil || len(old) == 0 {
		return 0, err
	}
	gone := db.Exec("DELETE FROM stock_flushes WHERE id IN ?", old)
	return int(gone.RowsAffected), gone.Error
}

// firstIDAt is how every UUIDv7 of a millisecond begins that is not before at.
func firstIDAt(at time.Time) string {
	text := fmt.Sprintf("%012x", at.UnixMilli())
	return text[:8] + "-" + text[8:]
}

func (p *Pruner) repairs(ctx context.Context) (pruned int, err error) {
	db := p.cfg.DB.WithContext(ctx)
	var many []string
	err = db.Raw("SELECT campaign_id FROM repairs GROUP BY campaign_id HAVING COUNT(*) > ? LIMIT ?",
		p.cfg.RepairsKept, resolve.PrunePage).Scan(&many).Error
	for _, id := range many {
		var oldest string // that is kept
		err = db.Raw("SELECT id FROM repairs WHERE campaign_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?",
			id, p.cfg.RepairsKept-1).Scan(&oldest).Error
		if err != nil {
			return pruned, err
		}
		gone := db.Exec("DELETE FROM repairs WHERE campaign_id = ? AND id < ?", id, oldest)
		if gone.Error != nil {
			return pruned, gone.Error
		}
		pruned += int(gone.RowsAffected)
	}
	return pruned, err
}
