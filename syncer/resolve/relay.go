package resolve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/lots"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

const (
	relayAfter          = 2 * time.Second // the process that wrote a row applies it first
	relayPage           = 500             // rows that are read at a time
	applyAtOnce         = 8               // campaigns whose rows are applied at the same time
	maxUnreachablePages = 3               // pages in a row that an unreachable Redis refuses before a round ends
	sendAgain           = time.Minute     // a row that Redis may have lost, in a stream that has no later entries
	maxSent             = 100_000         // rows that are remembered while MySQL has not applied their entries

	// Between two tries of a row that can't be applied, doubled each time.
	damagedWait    = time.Second
	damagedWaitMax = time.Minute
	maxDamaged     = 10_000 // rows whose tries are remembered
)

// errOutboxKind says that a newer program wrote a row: this one does not know its kind.
var errOutboxKind = errors.New("resolve: unknown kind of row in outbox")

// errRow says that one row can't be applied, which says nothing of the others.
var errRow = errors.New("resolve: row of outbox can't be applied")

// Relay brings the rows of outbox to Redis, each at least once. A released claim is known there by its record, so that its quota comes back
// once. What Redis replies confirms nothing: the writer deletes a row when it applies the entry of its event. A row that is there still
// once MySQL has applied the stream up to where it ended then was lost with Redis, and is brought again. Any number may run at once.
type Relay struct {
	db      *gorm.DB
	scripts *lua.Scripts
	metrics *relayMetrics
	after   time.Duration // is relayAfter, but in tests
	steps   steps.Steps

	loader *lots.Loader // nil: lots that are damaged or stopped wait

	damaged map[string]tries // by row, of those that can't be applied; Relay's own

	sent map[string]sentRow // by row, of those that Redis has had; Relay's own
}

// sentRow is where the claim stream of a row ended when Redis had had it.
type sentRow struct {
	partition int
	tip       lua.EntryID
	at        time.Time
}

// tries of a row that can't be applied.
type tries struct {
	again time.Time // when the next one is due
	wait  time.Duration
}

// NewRelay makes a relay; reg may be nil. Relay is for one goroutine, Apply for any number.
func NewRelay(db *gorm.DB, scripts *lua.Scripts, reg prometheus.Registerer) *Relay {
	return &Relay{
		db: db, scripts: scripts, metrics: newRelayMetrics(reg), after: relayAfter, damaged: make(map[string]tries),
		sent: make(map[string]sentRow),
	}
}

// LoadBy has lots loaded of which Redis lost a key, or which a loader left. Of a closed campaign no claim notices that. It is called before
// any other method.
func (r *Relay) LoadBy(l *lots.Loader) { r.loader = l }

// Relay goes once over the rows that Redis has not had, oldest first, and returns how many it has now. Rows that can't be
// applied now are returned as an error after the others had their turn.
func (r *Relay) Relay(ctx context.Context) (applied int, err error) {
	isEmpty, err := r.measure(ctx)
	if err != nil {
		return 0, err
	}
	offsets, err := r.offsets(ctx) // before the rows: one that is there still has not been applied up to here
	if err != nil {
		return 0, err
	}
	sent := r.sent
	r.sent = make(map[string]sentRow)
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
		page = r.unsent(r.due(page, before), sent, offsets)
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

// offsets are how far MySQL has applied the streams of the rows that Redis has had.
func (r *Relay) offsets(ctx context.Context) (map[int]lua.EntryID, error) {
	partitions := make(map[int]bool)
	for _, one := range r.sent {
		partitions[one.partition] = true
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	all, err := writer.Offsets(ctx, r.db.ConnPool, slices.Collect(maps.Keys(partitions))...)
	if err != nil {
		return nil, fmt.Errorf("resolve: relay: %w", err)
	}
	applied := make(map[int]lua.EntryID, len(all))
	for p, at := range all {
		applied[p], err = lua.ParseEntryID(at.EntryID)
		if err != nil {
			return nil, fmt.Errorf("resolve: relay: %w", err)
		}
	}
	return applied, nil
}

// unsent leaves out rows that Redis has had and whose entries MySQL may be about to apply.
func (r *Relay) unsent(page []models.OutboxRow, sent map[string]sentRow, applied map[int]lua.EntryID) []models.OutboxRow {
	return slices.DeleteFunc(page, func(row models.OutboxRow) bool {
		one, known := sent[row.ID]
		if !known || !applied[one.partition].Less(one.tip) || time.Since(one.at) > sendAgain {
			return false
		}
		r.sent[row.ID] = one
		return true
	})
}

// Apply brings rows to Redis, those of a campaign in their order, and returns how many it had then. A campaign that fails does not stop the
// others.
func (r *Relay) Apply(ctx context.Context, rows []models.OutboxRow) (applied int, err error) {
	done, _, err := r.deliver(ctx, rows)
	return len(done), err
}

// apply is Apply, which also names the rows that can't be applied, whatever becomes of others, and remembers those that Redis has had.
func (r *Relay) apply(ctx context.Context, rows []models.OutboxRow) (applied int, bad []string, err error) {
	done, bad, err := r.deliver(ctx, rows)
	if len(done) == 0 {
		return 0, bad, err
	}
	byRow := make(map[string]int, len(rows))
	var partitions []int
	for i := range rows {
		byRow[rows[i].ID] = lua.PartitionOf(rows[i].CampaignID, r.scripts.Partitions())
		partitions = append(partitions, byRow[rows[i].ID])
	}
	slices.Sort(partitions)
	tips, tipsErr := r.scripts.Tips(ctx, slices.Compact(partitions))
	for _, id := range done {
		if tipsErr == nil && len(r.sent) < maxSent {
			r.sent[id] = sentRow{byRow[id], tips[byRow[id]], time.Now()}
		}
	}
	return len(done), bad, err
}

// applyDecided is Apply for decisions that this process just committed.
func (r *Relay) applyDecided(ctx context.Context, decided []heldClaim) error {
	rows := make([]models.OutboxRow, len(decided))
	for i := range decided {
		rows[i] = decided[i].outbox
	}
	_, _, err := r.deliver(ctx, rows)
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
