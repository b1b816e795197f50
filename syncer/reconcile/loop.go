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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// reconcilerMetrics are the figures of the last round.
type reconcilerMetrics struct{ drift, differ, backlog prometheus.Gauge }

// newReconcilerMetrics registers the figures; with a nil Registerer they are kept to themselves.
func newReconcilerMetrics(reg prometheus.Registerer) *reconcilerMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return promauto.With(reg).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &reconcilerMetrics{
		drift: gauge("dibs_drift_units",
			"Units by which Redis and MySQL differ at a common watermark, whichever way, all campaigns added up. 0 on who does not lead."),
		differ: gauge("dibs_drift_campaigns", "Campaigns whose books differ by more than claims on their way. 0 on who does not lead."),
		backlog: gauge("dibs_reconcile_backlog_claims",
			"Claims on their way to MySQL, when the campaigns were last compared. 0 on who does not lead."),
	}
}

func (m *reconcilerMetrics) set(t *tallies) {
	m.drift.Set(float64(t.drift))
	m.differ.Set(float64(t.differ))
	m.backlog.Set(float64(t.backlog))
}

// tallies are what a round adds up.
type tallies struct{ drift, differ, backlog int64 }

// remembered is what is known of a campaign from rounds before.
type remembered struct {
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
	var failed []error
	var sums tallies
	before := r.before
	r.before = make(map[string]*remembered, len(before))
	for after := ""; ; {
		page, err := r.page(ctx, after)
		if err != nil {
			r.recall(before)
			return 0, errors.Join(append(failed, err)...)
		}
		for _, id := range page {
			past := before[id]
			if past == nil {
				past = &remembered{}
			}
			r.before[id] = past
			err := r.reconcile(ctx, id, past, &sums)
			if err != nil && !errors.Is(err, models.ErrNotFound) && len(failed) < campaigns.PageSize {
				failed = append(failed, err)
			}
			if ctx.Err() != nil {
				r.recall(before)
				return 0, fmt.Errorf("syncer: reconcile: %w", context.Cause(ctx))
			}
		}
		if len(page) < campaigns.PageSize {
			break
		}
		after = page[len(page)-1]
	}
	r.metrics.set(&sums)
	return int(sums.differ), errors.Join(failed...)
}

// recall keeps what was known of the campaigns that a round which was cut short did not come to.
func (r *Reconciler) recall(before map[string]*remembered) {
	maps.Copy(r.before, before)
}

// Rest has the figures say nothing: another process leads.
func (r *Reconciler) ResetMetrics() { r.metrics.set(&tallies{}) }

func (r *Reconciler) page(ctx context.Context, after string) ([]string, error) {
	var ids []string
	err := r.cfg.DB.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE id > ? AND residency = ? ORDER BY id LIMIT ?",
		after, models.ResidencyResident, campaigns.PageSize).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("syncer: reconcile: %w", err)
	}
	return ids, nil
}

// reconcile compares one campaign and writes down what is new.
func (r *Reconciler) reconcile(ctx context.Context, id string, past *remembered, sums *tallies) error {
	depth := DepthBooks
	every := r.cfg.CountEvery
	if past.differs {
		every /= 6 // so that what was put right is told soon
	}
	counts := time.Since(past.countedAt) >= every
	if counts {
		depth = DepthRows
	}
	found, err := r.Compare(ctx, id, depth)
	if err != nil {
		return err
	}
	if found.wentBack { // the API would go on: an older state takes claims like any other
		if _, err := r.cfg.Hydrator.Hydrate(ctx, id); err != nil && !errors.Is(err, campaigns.ErrLost) {
			return err
		}
	}
	r.learn(ctx, &found, past, counts)
	row := rowOf(&found)
	if found.Backlog != nil {
		sums.backlog += *found.Backlog
	}
	if past.differs {
		sums.differ++
		sums.drift += max(past.drift, -past.drift)
		if row.Drift != nil && *row.Drift == 0 {
			row.Drift = &past.drift // of the rows, which are not counted each time
		}
	}
	if sameFigures(&row, &past.row) && row.At.Sub(past.row.At) < r.cfg.WriteEvery {
		return nil
	}
	return r.record(ctx, &row, past)
}

// Record writes a comparison down, as one of somebody who asked for it.
func (r *Reconciler) Record(ctx context.Context, found *Comparison) error {
	row := rowOf(found)
	return r.record(ctx, &row, &remembered{})
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

// learn remembers whether a campaign differs, and says so once.
func (r *Reconciler) learn(ctx context.Context, found *Comparison, past *remembered, counts bool) {
	if counts {
		past.countedAt = time.Now()
	}
	if found.Agrees() && !counts {
		return // the rows may differ still
	}
	if !found.Agrees() && !past.differs {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the books differ: `dibs reconcile --repair` puts them right",
			slog.String("campaign_id", found.CampaignID), slog.Any("differences", found.Differences))
	}
	if found.Agrees() && past.differs {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "the books agree again", slog.String("campaign_id", found.CampaignID))
	}
	past.differs, past.drift = !found.Agrees(), 0
	if past.differs && found.Drift != nil {
		past.drift = *found.Drift
	}
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
func (r *Reconciler) record(ctx context.Context, row *models.Reconciliation, past *remembered) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("syncer: reconcile: %w", err)
	}
	row.ID = id.String()
	db := r.cfg.DB.WithContext(ctx)
	if err := db.Create(row).Error; err != nil {
		return fmt.Errorf("syncer: reconcile %s: %w", row.CampaignID, err)
	}
	past.row = *row
	if past.written++; past.written < r.cfg.Keep && past.written > 1 {
		return nil
	}
	past.written = 1
	var oldest string // that is kept
	err = db.Raw("SELECT id FROM reconciliations WHERE campaign_id = ? ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?",
		row.CampaignID, r.cfg.Keep-1).Scan(&oldest).Error
	if err == nil && oldest != "" {
		err = db.Exec("DELETE FROM reconciliations WHERE campaign_id = ? AND id < ?", row.CampaignID, oldest).Error
	}
	if err != nil {
		return fmt.Errorf("syncer: reconcile %s: %w", row.CampaignID, err)
	}
	return nil
}
