package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

const (
	relayAfter          = 2 * time.Second        // the process that wrote a row applies and deletes it first
	forgetAfter         = 200 * time.Millisecond // how long rows that Redis has wait to be deleted with others
	relayPage           = 500                    // rows that are read at a time
	applyAtOnce         = 8                      // campaigns whose rows are applied at the same time
	maxUnreachablePages = 3                      // pages in a row that an unreachable Redis refuses before a round ends

	// Between two tries of a row that can't be applied, doubled each time.
	damagedWait    = time.Second
	damagedWaitMax = time.Minute
	maxDamaged     = 10_000 // rows whose tries are remembered
)

// errOutboxKind says that a newer program wrote a row: this one does not know its kind.
var errOutboxKind = errors.New("resolve: unknown kind of row in outbox")

// errRow says that one row can't be applied, which says nothing of the others.
var errRow = errors.New("resolve: row of outbox can't be applied")

// Relay applies the rows of outbox to Redis, each at least once. A row takes two steps, and anybody may repeat either:
//
//  1. Redis gets it. A released claim is known there by its record, so that its quota comes back once.
//  2. The row is deleted.
//
// Any number may run at once.
type Relay struct {
	db          *gorm.DB
	scripts     *lua.Scripts
	metrics     *relayMetrics
	after       time.Duration // is relayAfter, but in tests
	deleteDelay time.Duration // is forgetAfter, but in tests; 0 is not at all
	steps       steps.Steps

	hydrator *residency.Hydrator // nil: lots whose keys are damaged wait

	damaged map[string]tries // by row, of those that can't be applied; Relay's own

	mu      sync.Mutex
	applied []string // rows that Redis has, to be deleted
}

// tries of a row that can't be applied.
type tries struct {
	again time.Time // when the next one is due
	wait  time.Duration
}

// NewRelay makes a relay; reg may be nil. Relay is for one goroutine, Apply for any number.
func NewRelay(db *gorm.DB, scripts *lua.Scripts, reg prometheus.Registerer) *Relay {
	return &Relay{
		db: db, scripts: scripts, metrics: newRelayMetrics(reg), after: relayAfter, deleteDelay: forgetAfter, damaged: make(map[string]tries),
	}
}

// LoadDamagedBy has lots loaded again of which Redis lost a key. Of a closed campaign no claim notices that. It is called before any other
// method.
func (r *Relay) LoadDamagedBy(h *residency.Hydrator) { r.hydrator = h }

// Relay goes once over the rows that Redis has not had, oldest first, and returns how many it has now. Rows that can't be
// applied now are returned as an error after the others had their turn.
func (r *Relay) Relay(ctx context.Context) (applied int, err error) {
	isEmpty, err := r.measure(ctx)
	if err != nil {
		return 0, err
	}
	before := r.damaged // a row that is gone is not damaged any more
	r.damaged = make(map[string]tries)
	if isEmpty {
		r.metrics.damaged.Set(0)
		return 0, nil
	}
	var failed []error
	vain := 0
	for page, err := range sqlstore.Pages(func(row *models.OutboxRow) string { return row.ID }, r.unapplied(ctx)) {
		if err != nil {
			return applied, errors.Join(append(failed, fmt.Errorf("resolve: read outbox: %w", err))...)
		}
		page = r.due(page, before)
		n, bad, err := r.apply(ctx, page)
		r.remember(page, bad)
		applied += n
		vain++
		if n > 0 || !isAway(err) {
			vain = 0
		}
		switch {
		case ctx.Err() != nil:
			return applied, fmt.Errorf("resolve: relay: %w", context.Cause(ctx))
		case vain >= maxUnreachablePages:
			return applied, errors.Join(append(failed, err)...)
		case err != nil && len(failed) < sqlstore.PageSize:
			failed = append(failed, err)
		}
	}
	r.metrics.damaged.Set(float64(len(r.damaged)))
	return applied, errors.Join(failed...)
}

// due leaves out rows that could not be applied before and whose next try is not due.
func (r *Relay) due(page []models.OutboxRow, before map[string]tries) []models.OutboxRow {
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(page), func(row models.OutboxRow) bool { // the page reports where the next one begins
		past, known := before[row.ID]
		if known {
			r.damaged[row.ID] = past
		}
		return now.Before(past.again)
	})
}

// remember takes note of the rows of a page that can't be applied, by their ids, and forgets the others.
func (r *Relay) remember(page []models.OutboxRow, bad []string) {
	for i := range page {
		id := page[i].ID
		was, known := r.damaged[id]
		if !slices.Contains(bad, id) {
			delete(r.damaged, id)
		} else if known || len(r.damaged) < maxDamaged {
			wait := min(max(2*was.wait, damagedWait), damagedWaitMax)
			r.damaged[id] = tries{time.Now().Add(wait), wait}
		}
	}
}

// unapplied fetches the rows that Redis has not had, but for those that their writers may be about to apply. The clock of a writer
// that is ahead must not keep its rows for longer: rows of the future are taken as well.
func (r *Relay) unapplied(ctx context.Context) func(after string) ([]models.OutboxRow, error) {
	now := sqlstore.Now() // of the pass: rows that come meanwhile are the next one's
	return func(after string) (page []models.OutboxRow, err error) {
		err = sqlstore.On(r.db.WithContext(ctx)).Scan(&page, "SELECT id, campaign_id, kind, payload FROM outbox"+
			" WHERE id > ? AND (created_at <= ? OR created_at > ?)"+
			" ORDER BY id LIMIT ?", after, now.Add(-r.after).Format(sqlstore.TimeLayout), now.Format(sqlstore.TimeLayout), relayPage)
		return page, err
	}
}

// isAway reports whether Redis can't be asked at all now.
func isAway(err error) bool {
	return errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown)
}

// Apply applies rows, those of a campaign in their order, deletes those that Redis has now, and returns how many these are. A campaign
// that fails does not stop the others.
func (r *Relay) Apply(ctx context.Context, rows []models.OutboxRow) (applied int, err error) {
	applied, _, err = r.apply(ctx, rows)
	return applied, err
}

// apply is Apply, which also names the rows that can't be applied, whatever becomes of others.
func (r *Relay) apply(ctx context.Context, rows []models.OutboxRow) (applied int, bad []string, err error) {
	done, bad, err := r.deliver(ctx, rows)
	if forgetErr := r.forget(ctx, done); forgetErr != nil {
		return 0, bad, errors.Join(err, forgetErr)
	}
	return len(done), bad, err
}

// applyDecided is Apply for decisions that this process just committed. Their rows are deleted some moments later, with those of others,
// so that this costs no commit of its own. A process that dies before leaves rows that the leader's relay applies again.
func (r *Relay) applyDecided(ctx context.Context, decided []heldClaim) error {
	rows := make([]models.OutboxRow, len(decided))
	for i := range decided {
		rows[i] = decided[i].outbox
	}
	done, _, err := r.deliver(ctx, rows)
	if len(done) == 0 {
		return err
	}
	if r.deleteDelay == 0 {
		return errors.Join(err, r.forget(ctx, done))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.applied) == 0 {
		time.AfterFunc(r.deleteDelay, func() {
			ctx, cancel := context.WithTimeout(context.Background(), relayAfter)
			defer cancel()
			_ = r.DeletePublished(ctx) // the leader's relay does it again
		})
	}
	r.applied = append(r.applied, done...)
	return err
}

// deliver brings rows to Redis and returns the ids of those that it has, and of those that can't be applied.
func (r *Relay) deliver(ctx context.Context, rows []models.OutboxRow) (done, bad []string, err error) {
	var order []string
	byCampaign := make(map[string][]models.OutboxRow)
	for i := range rows {
		id := rows[i].CampaignID
		if byCampaign[id] == nil {
			order = append(order, id)
		}
		byCampaign[id] = append(byCampaign[id], rows[i])
	}
	known, err := r.campaigns(ctx, rows)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var failed []error
	var g errgroup.Group
	g.SetLimit(applyAtOnce)
	for _, id := range order {
		g.Go(func() error {
			ids, refused, err := r.applyToRedis(ctx, known[id], byCampaign[id])
			mu.Lock()
			defer mu.Unlock()
			done = append(done, ids...)
			bad = append(bad, refused...)
			if err != nil {
				failed = append(failed, err)
			}
			return nil
		})
	}
	_ = g.Wait() // what failed is in failed
	r.steps.At("applied")
	return done, bad, errors.Join(failed...)
}

// DeletePublished deletes the rows that Redis has and that wait for it. A process calls it when it ends.
func (r *Relay) DeletePublished(ctx context.Context) error {
	r.mu.Lock()
	ids := r.applied
	r.applied = nil
	r.mu.Unlock()
	return r.forget(ctx, ids)
}

// campaigns reads the campaigns of releases.
func (r *Relay) campaigns(ctx context.Context, rows []models.OutboxRow) (map[string]*models.Campaign, error) {
	known := make(map[string]*models.Campaign)
	var ids []string
	for i := range rows {
		id := rows[i].CampaignID
		if _, is := known[id]; !is && rows[i].Kind == models.OutboxRelease {
			known[id] = nil
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return known, nil
	}
	var all []models.Campaign
	if err := r.db.WithContext(ctx).Where("id IN ?", ids).Find(&all).Error; err != nil {
		return nil, fmt.Errorf("resolve: lots of outbox: %w", err)
	}
	for i := range all {
		known[all[i].ID] = &all[i]
	}
	r.steps.At("campaign read")
	return known, nil
}

// forget is step 2.
func (r *Relay) forget(ctx context.Context, ids []string) error {
	for part := range slices.Chunk(ids, campaigns.OutboxAtOnce) {
		err := sqlstore.Retry(ctx, func() error {
			return sqlstore.On(r.db.WithContext(ctx)).Run("DELETE FROM outbox WHERE id IN ?", part)
		})
		if err != nil {
			return fmt.Errorf("resolve: delete rows of outbox that redis has: %w", err)
		}
		r.steps.At("marked")
	}
	return nil
}

// measure sets the age of the oldest row that Redis has not had, and reports whether there is none.
func (r *Relay) measure(ctx context.Context) (isEmpty bool, err error) {
	var rows []models.OutboxRow
	err = sqlstore.On(r.db.WithContext(ctx)).Scan(&rows, "SELECT id, created_at FROM outbox ORDER BY id LIMIT 1")
	if err != nil {
		return false, fmt.Errorf("resolve: read outbox: %w", err)
	}
	if len(rows) == 0 {
		r.metrics.oldest.Set(0)
		return true, nil
	}
	r.metrics.oldest.Set(max(0, time.Since(rows[0].CreatedAt)).Seconds())
	return false, nil
}

// ResetMetrics sets the figures of the outbox to 0: another process leads.
func (r *Relay) ResetMetrics() {
	r.metrics.oldest.Set(0)
	r.metrics.damaged.Set(0)
}
