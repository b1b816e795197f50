package reconcile

import (
	"context"
	"fmt"
	"reflect"

	"dibs/internal/sqlstore"
	"dibs/models"

	"github.com/google/uuid"
)

// Record writes comparisons down that someone asked for.
func (r *Reconciler) Record(ctx context.Context, found ...*Comparison) error {
	rows := make([]models.Reconciliation, len(found))
	for i := range found {
		rows[i] = rowOf(found[i])
	}
	return r.insert(ctx, rows)
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

// sameFigures reports whether two rows differ in nothing but their ids and times.
func sameFigures(a, b models.Reconciliation) bool {
	b.ID = a.ID
	b.At = a.At
	return reflect.DeepEqual(a, b)
}

// record writes the rows of a round, and now and then takes away old ones.
func (r *Reconciler) record(ctx context.Context, rows []models.Reconciliation) error {
	if err := r.insert(ctx, rows); err != nil {
		return err
	}
	var due []string // those of whose rows the first or the last was written that a prune leaves
	for i := range rows {
		p := r.past[rows[i].CampaignID]
		p.row = rows[i]
		p.written++
		if p.written == 1 || p.written == r.maxRecorded {
			p.written = 1
			due = append(due, rows[i].CampaignID)
		}
	}
	return r.prune(ctx, due)
}

func (r *Reconciler) insert(ctx context.Context, rows []models.Reconciliation) error {
	if len(rows) == 0 {
		return nil
	}
	for i := range rows {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
		rows[i].ID = id.String()
	}
	if err := r.db.WithContext(ctx).CreateInBatches(rows, sqlstore.PageSize).Error; err != nil {
		return fmt.Errorf("reconcile: record what was found: %w", err)
	}
	return nil
}

// prune deletes all but the newest rows of campaigns. It asks for all of them at once: most have few.
func (r *Reconciler) prune(ctx context.Context, campaignIDs []string) error {
	if len(campaignIDs) == 0 {
		return nil
	}
	db := r.db.WithContext(ctx)
	var full []string
	err := sqlstore.On(db).Scan(&full,
		"SELECT campaign_id FROM reconciliations WHERE campaign_id IN ? GROUP BY campaign_id HAVING COUNT(*) > ?",
		campaignIDs, r.maxRecorded)
	for _, id := range full {
		if err != nil {
			break
		}
		var oldest string // that is kept
		err = sqlstore.On(db).Scan(&oldest, "SELECT id FROM reconciliations WHERE campaign_id = ? ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?",
			id, r.maxRecorded-1)
		if err == nil {
			err = sqlstore.On(db).Run("DELETE FROM reconciliations WHERE campaign_id = ? AND id < ?", id, oldest)
		}
	}
	if err != nil {
		return fmt.Errorf("reconcile: prune reconciliations: %w", err)
	}
	return nil
}
