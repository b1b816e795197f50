package resolve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Defaults of RelayConfig.
const (
	DefaultRelayAfter = time.Second // so long who wrote a row has the first go at it
	DefaultRelayKeep  = 24 * time.Hour

	relayPage  = 500  // rows that are read at a time
	vainMost   = 3    // such pages in a row, none of which Redis would take, end a round
	PrunePage  = 1000 // rows that one statement takes away
	PrunesMost = 20   // of one round: another 20,000 rows go with the next
)

// errOutboxKind says that a row is of a kind that this program does not know: a newer one wrote it.
var errOutboxKind = errors.New("syncer: outbox: unknown kind of row")

// errRow says that one row can't be applied, which says nothing of the others.
var errRow = errors.New("syncer: outbox: row can't be applied")

// RelayConfig is how a Relay works. DB, Scripts and Logger are required.
type RelayConfig struct {
	DB      *gorm.DB
	Scripts campaigns.Scripts

	After time.Duration // Relay leaves younger rows to those who wrote them
	Keep  time.Duration // how long rows stay after Redis had them

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c RelayConfig) WithDefaults() RelayConfig {
	sqlstore.OrDefault(&c.After, DefaultRelayAfter)
	sqlstore.OrDefault(&c.Keep, DefaultRelayKeep)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c RelayConfig) Validate() error {
	switch {
	case c.DB == nil:
		return sqlstore.Required("DB")
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.After < 0 || c.Keep < 0:
		return fmt.Errorf("%w: After and Keep must be positive", sqlstore.ErrConfig)
	}
	return nil
}

// Relay tells Redis what MySQL decided: rows of outbox, at least once each. A row takes two steps, either of which may be
// repeated by anybody:
//
//  1. Redis is told. Quota that was given back is known by the claim's record there, so that it comes back once.
//  2. The row is marked as applied.
//
// Any number may run at once.
type Relay struct {
	cfg     RelayConfig
	metrics *relayMetrics

	step func(name string) // tests only: called between the steps
}

// NewRelay checks cfg and makes a relay.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, metrics: newRelayMetrics(cfg.Registerer), step: func(string) {}}, nil
}

// Relay goes once over all rows that Redis has not had, oldest first, and returns how many it has now. What can't be told now
// is returned as an error after the others had their turn.
func (r *Relay) Relay(ctx context.Context) (applied int, err error) {
	if err := r.measure(ctx); err != nil {
		return 0, err
	}
	var failed []error
	vain := 0 // pages in a row of which Redis took nothing
	for after := ""; ; {
		var page []models.OutboxRow
		err := r.cfg.DB.WithContext(ctx).Raw("SELECT id, campaign_id, kind, payload FROM outbox"+
			" WHERE applied_at IS NULL AND id > ? AND created_at <= ?"+
			" ORDER BY id LIMIT ?", after, sqlstore.Now().Add(-r.cfg.After).Format(sqlstore.TimeLayout), relayPage).Scan(&page).Error
		if err != nil {
			return applied, errors.Join(append(failed, fmt.Errorf("syncer: relay: %w", err))...)
		}
		n, err := r.Apply(ctx, page)
		applied += n
		if vain++; n > 0 || !isAway(err) {
			vain = 0
		}
		switch {
		case ctx.Err() != nil:
			return applied, fmt.Errorf("syncer: relay: %w", context.Cause(ctx))
		case vain >= vainMost:
			return applied, errors.Join(append(failed, err)...) // the rest would wait for it just the same
		case err != nil && len(failed) < campaigns.PageSize:
			failed = append(failed, err)
		}
		if len(page) < relayPage {
			return applied, errors.Join(failed...)
		}
		after = page[len(page)-1].ID
	}
}

// isAway tells whether Redis can't be asked at all now.
func isAway(err error) bool {
	return errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown)
}

// Apply tells Redis of rows, in their order for each campaign, and returns how many it had. One campaign's trouble does not
// stop another's.
func (r *Relay) Apply(ctx context.Context, rows []models.OutboxRow) (applied int, err error) {
	var order []string
	byCampaign := make(map[string][]models.OutboxRow)
	for i := range rows {
		id := rows[i].CampaignID
		if byCampaign[id] == nil {
			order = append(order, id)
		}
		byCampaign[id] = append(byCampaign[id], rows[i])
	}
	var failed []error
	for _, id := range order {
		done, err := r.tell(ctx, byCampaign[id])
		if err != nil {
			failed = append(failed, err)
		}
		r.step("told")
		if err := r.mark(ctx, done); err != nil {
			failed = append(failed, err)
			continue
		}
		applied += len(done)
	}
	return applied, errors.Join(failed...)
}

// tell brings the rows of one campaign to Redis and returns the ids of those that it has. Releases that follow each other
// share a call.
func (r *Relay) tell(ctx context.Context, rows []models.OutboxRow) (done []string, err error) {
	var failed []error
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && n < lua.ReleasesMax && rows[n].Kind == rows[0].Kind && rows[0].Kind == models.OutboxRelease {
			n++
		}
		part := rows[:n]
		rows = rows[n:]
		var told []string
		switch part[0].Kind {
		case models.OutboxEvent:
			told, err = r.tellEvents(ctx, part)
		case models.OutboxRelease:
			told, err = r.giveBack(ctx, part)
		default:
			err = fmt.Errorf("%w: %s is a %.20q", errOutboxKind, part[0].ID, part[0].Kind)
		}
		done = append(done, told...)
		if err != nil {
			failed = append(failed, err)
		}
		if err != nil && !errors.Is(err, errRow) && !errors.Is(err, errOutboxKind) {
			break // the rest of the campaign would fare the same
		}
	}
	return done, errors.Join(failed...)
}

// tellEvents adds the events of rows to the claim stream.
func (r *Relay) tellEvents(ctx context.Context, rows []models.OutboxRow) (done []string, err error) {
	for i := range rows {
		if err := r.cfg.Scripts.Append(ctx, rows[i].CampaignID, rows[i].ID, rows[i].Payload); err != nil {
			return done, fmt.Errorf("syncer: outbox %s: %w", rows[i].ID, err)
		}
		done = append(done, rows[i].ID)
		r.metrics.applied.WithLabelValues(string(rows[i].Kind)).Inc()
	}
	return done, nil
}

// mark is step 2.
func (r *Relay) mark(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	err := sqlstore.Retry(ctx, func() error {
		return r.cfg.DB.WithContext(ctx).Exec("UPDATE outbox SET applied_at = ? WHERE id IN ? AND applied_at IS NULL",
			sqlstore.Now().Format(sqlstore.TimeLayout), ids).Error
	})
	if err != nil {
		return fmt.Errorf("syncer: outbox: %w", err)
	}
	r.step("marked")
	return nil
}

// Prune takes away rows that Redis has had for long, in bounded batches, and returns how many.
func (r *Relay) Prune(ctx context.Context) (pruned int, err error) {
	before := sqlstore.Now().Add(-r.cfg.Keep).Format(sqlstore.TimeLayout)
	for range PrunesMost {
		var ids []string
		db := r.cfg.DB.WithContext(ctx)
		err := db.Raw("SELECT id FROM outbox WHERE applied_at < ? ORDER BY applied_at, id LIMIT ?", before, PrunePage).Scan(&ids).Error
		if err == nil && len(ids) > 0 {
			err = db.Exec("DELETE FROM outbox WHERE id IN ?", ids).Error
		}
		if err != nil {
			return pruned, fmt.Errorf("syncer: prune outbox: %w", err)
		}
		if pruned += len(ids); len(ids) < PrunePage {
			break
		}
	}
	return pruned, nil
}

// measure brings the age of the oldest row that Redis has not had up to date.
func (r *Relay) measure(ctx context.Context) error {
	var rows []models.OutboxRow
	err := r.cfg.DB.WithContext(ctx).Raw("SELECT id, created_at FROM outbox WHERE applied_at IS NULL ORDER BY id LIMIT 1").Scan(&rows).Error
	if err != nil {
		return fmt.Errorf("syncer: relay: %w", err)
	}
	if len(rows) == 0 {
		r.metrics.oldest.Set(0)
		return nil
	}
	r.metrics.oldest.Set(max(0, time.Since(rows[0].CreatedAt)).Seconds())
	return nil
}

// Rest has the figures say nothing: another process leads.
func (r *Relay) ResetMetrics() { r.metrics.oldest.Set(0) }
