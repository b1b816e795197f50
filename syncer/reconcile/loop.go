package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
)

// past is what is known of a campaign from rounds before.
type past struct {
	round     int                   // that it was last met in
	row       models.Reconciliation // the last that was written
	countedAt time.Time
	differs   bool  // when its rows were last counted, or by its books now
	drift     int64 // then
	written   int   // rows since the last prune
}

// Reconcile goes once over all campaigns that are in Redis by their books, records what it finds in reconciliations, and
// returns how many of them differ. The books are compared each time, the rows now and then. A failure is returned after the
// others had their turn.
func (r *Reconciler) Reconcile(ctx context.Context) (differ int, err error) {
	var sum sums
	var cut error // the campaigns behind it were not met
	r.round++
	fetch := func(after string) (page []string, err error) {
		page, cut = r.page(ctx, after)
		return page, cut
	}
	err = sqlstore.EachRow(ctx, sqlstore.Itself, fetch, func(id *string) error {
		if r.past[*id] == nil {
			r.past[*id] = &past{}
		}
		r.past[*id].round = r.round
		err := r.reconcile(ctx, *id, r.past[*id], &sum)
		if errors.Is(err, models.ErrNotFound) {
			return nil
		}
		return err
	})
	if cut != nil || ctx.Err() != nil {
		return 0, fmt.Errorf("reconcile: %w", err)
	}
	maps.DeleteFunc(r.past, func(_ string, p *past) bool { return p.round != r.round })
	r.metrics.set(sum)
	return int(sum.differ), err
}

// page reads campaigns that are in Redis by their books.
func (r *Reconciler) page(ctx context.Context, after string) (ids []string, err error) {
	err = r.db.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE id > ? AND residency = ? ORDER BY id LIMIT ?",
		after, models.ResidencyResident, sqlstore.PageSize).Scan(&ids).Error
	return ids, err
}

// reconcile compares one campaign and writes down what is new.
func (r *Reconciler) reconcile(ctx context.Context, id string, p *past, sum *sums) error {
	depth, every := DepthBooks, r.countEvery
	if p.differs {
		every /= 6 // so that what was put right is told soon
	}
	counts := time.Since(p.countedAt) >= every
	if counts {
		depth = DepthRows
	}
	found, err := r.Compare(ctx, id, depth)
	if err != nil {
		return err
	}
	if found.wentBack { // the API would go on: an older state takes claims like any other
		if _, err := r.hydrator.Hydrate(ctx, id); err != nil && !errors.Is(err, campaigns.ErrLost) {
			return err
		}
	}
	r.learn(ctx, &found, p, counts)
	row := rowOf(&found)
	if found.Backlog != nil {
		sum.backlog += *found.Backlog
	}
	if p.differs {
		sum.differ++
		sum.drift += max(p.drift, -p.drift)
		if row.Drift != nil && *row.Drift == 0 {
			row.Drift = &p.drift // of the rows, which are not counted each time
		}
	}
	if sameFigures(&row, &p.row) && row.At.Sub(p.row.At) < recordEvery {
		return nil
	}
	return r.record(ctx, &row, p)
}

// learn remembers whether a campaign differs, and says so once.
func (r *Reconciler) learn(ctx context.Context, found *Comparison, p *past, counts bool) {
	if counts {
		p.countedAt = time.Now()
	}
	if found.Agrees() && !counts {
		return // the rows may differ still
	}
	if !found.Agrees() && !p.differs {
		r.log.LogAttrs(ctx, slog.LevelError, "the books differ: `dibs reconcile --repair` puts them right",
			slog.String("campaign_id", found.CampaignID), slog.Any("differences", found.Differences))
	}
	if found.Agrees() && p.differs {
		r.log.LogAttrs(ctx, slog.LevelInfo, "the books agree again", slog.String("campaign_id", found.CampaignID))
	}
	p.differs, p.drift = !found.Agrees(), 0
	if p.differs && found.Drift != nil {
		p.drift = *found.Drift
	}
}

// Record writes a comparison down, as one of somebody who asked for it.
func (r *Reconciler) Record(ctx context.Context, found *Comparison) error {
	row := rowOf(found)
	return r.record(ctx, &row, &past{})
}

func rowOf(found *Comparison) models.Reconciliation {
	row := models.Reconciliation{
		CampaignID: found.CampaignID, MySQLRemaining: found.MySQL.Remaining, Backlog: found.Backlog, Drift: found.Drift, At: sqlstore.Now(),
	}
	if found.Redis != nil {
		row.RedisRemaining = &found.Redis.Remaining
	}
	return row
}

func sameFigures(a, b *models.Reconciliation) bool {
	return a.CampaignID == b.CampaignID && a.MySQLRemaining == b.MySQLRemaining &&
		sameNumber(a.RedisRemaining, b.RedisRemaining) && sameNumber(a.Backlog, b.Backlog) && sameNumber(a.Drift, b.Drift)
}

func sameNumber(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// record writes a row and now and then takes away old ones.
func (r *Reconciler) record(ctx context.Context, row *models.Reconciliation, p *past) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	row.ID = id.String()
	if err := r.db.WithContext(ctx).Create(row).Error; err != nil {
		return fmt.Errorf("reconcile: record %s: %w", row.CampaignID, err)
	}
	p.row = *row
	if p.written++; p.written < r.recordedMost && p.written > 1 {
		return nil
	}
	p.written = 1
	return r.prune(ctx, row.CampaignID)
}

// prune deletes all but the newest rows of a campaign.
func (r *Reconciler) prune(ctx context.Context, id string) error {
	var oldest string // that is kept
	db := r.db.WithContext(ctx)
	err := db.Raw("SELECT id FROM reconciliations WHERE campaign_id = ? ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?",
		id, r.recordedMost-1).Scan(&oldest).Error
	if err == nil && oldest != "" {
		err = db.Exec("DELETE FROM reconciliations WHERE campaign_id = ? AND id < ?", id, oldest).Error
	}
	if err != nil {
		return fmt.Errorf("reconcile: prune reconciliations of %s: %w", id, err)
	}
	return nil
}
