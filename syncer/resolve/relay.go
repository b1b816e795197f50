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
	"dibs/models/stored"
	"dibs/syncer/lots"
	"dibs/syncer/offset"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

const (
	relayAfter          = 2 * time.Second // the writer of a row delivers it first
	relayPage           = 500             // rows of a read
	applyAtOnce         = 8               // campaigns that are delivered concurrently
	maxUnreachablePages = 3               // failed pages in a row that end a round
	sendAgain           = time.Minute     // for a row that Redis may have lost, in an idle stream
	maxSent             = 100_000         // rows remembered until MySQL applies their entries

	// The wait between two tries of a damaged row, doubled each time.
	damagedWait    = time.Second
	damagedWaitMax = time.Minute
	maxDamaged     = 10_000 // rows remembered
)

// errOutboxKind reports a row of an unknown kind, from a newer program.
var errOutboxKind = errors.New("resolve: unknown kind of row in outbox")

// errRow reports one bad row; the others may be good.
var errRow = errors.New("resolve: row of outbox can't be applied")

// Relay delivers the rows of outbox to Redis, each at least once. The
// record of a released claim in Redis makes it count once.
//
// Redis' reply confirms nothing: the writer deletes a row when it applies the
// entry of its event. A row that still exists when MySQL has applied the tip
// at delivery was lost with Redis. It is sent again.
//
// Any number may run.
type Relay struct {
	db      *gorm.DB
	scripts *lua.Scripts
	metrics *relayMetrics
	after   time.Duration // relayAfter, except in tests
	steps   steps.Steps
	loader  *lots.Loader       // nil: damaged or stopped lots wait
	damaged map[string]tries   // by id of a bad row; used by Relay alone
	sent    map[string]sentRow // by id of a delivered row; used by Relay alone
}

type sentRow struct {
	partition int
	tip       lua.EntryID
	at        time.Time
}

type tries struct {
	again time.Time // the next one
	wait  time.Duration
}

// NewRelay returns a relay; reg may be nil.
// Relay serves one goroutine, Deliver any number.
func NewRelay(db *gorm.DB, scripts *lua.Scripts, reg prometheus.Registerer) *Relay {
	return &Relay{
		db: db, scripts: scripts, metrics: newRelayMetrics(reg), after: relayAfter,
		damaged: make(map[string]tries), sent: make(map[string]sentRow),
	}
}

// LoadBy sets the loader of damaged lots, and of lots
// that a loader left: no claim finds those of closed
// campaigns. It is called before any other method.
func (r *Relay) LoadBy(l *lots.Loader) { r.loader = l }

// Relay delivers all pending rows once, oldest first, and returns how
// many. Bad rows do not stop the others; they are the error.
func (r *Relay) Relay(ctx context.Context) (applied int, err error) {
	isEmpty, err := r.measure(ctx)
	if err != nil {
		return 0, err
	}
	offsets, err := r.offsets(ctx) // before the rows: one still there is not applied up to here
	if err != nil {
		return 0, err
	}
	sent := r.sent
	r.sent = make(map[string]sentRow)
	before := r.damaged // deleted rows drop out
	r.damaged = make(map[string]tries)
	if isEmpty {
		r.metrics.damaged.Set(0)
		return 0, nil
	}
	var failed []error
	vain := 0
	for page, err := range sqlstore.Pages(func(row *stored.OutboxRow) string { return row.ID }, r.unapplied(ctx)) {
		if err != nil {
			return applied, errors.Join(append(failed, fmt.Errorf("resolve: read outbox: %w", err))...)
		}
		page = r.unsent(r.due(page, before), sent, offsets)
		n, bad, err := r.deliverPending(ctx, page)
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

func (r *Relay) due(page []stored.OutboxRow, before map[string]tries) []stored.OutboxRow {
	now := time.Now()
	// the page keeps the cursor
	return slices.DeleteFunc(slices.Clone(page), func(row stored.OutboxRow) bool {
		past, known := before[row.ID]
		if known {
			r.damaged[row.ID] = past
		}
		return now.Before(past.again)
	})
}

// remember updates the backoffs of a page's rows. bad are the ids of bad
// ones.
func (r *Relay) remember(page []stored.OutboxRow, bad []string) {
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

// unapplied reads pending rows, except those that their writers may still
// deliver. Rows of the future are included, as a writer's clock may be ahead.
func (r *Relay) unapplied(ctx context.Context) func(after string) ([]stored.OutboxRow, error) {
	now := sqlstore.Now() // of the round: later rows are the next one's
	return func(after string) (page []stored.OutboxRow, err error) {
		const query = "SELECT id, campaign_id, kind, payload FROM outbox" +
			" WHERE id > ? AND (created_at <= ? OR created_at > ?) ORDER BY id LIMIT ?"
		err = r.db.WithContext(ctx).Raw(query,
			after, now.Add(-r.after).Format(sqlstore.TimeLayout), now.Format(sqlstore.TimeLayout), relayPage).
			Scan(&page).Error
		return page, err
	}
}

func isAway(err error) bool {
	return errors.Is(err, lua.ErrUnavailable) || errors.Is(err, lua.ErrOutcomeUnknown)
}

func (r *Relay) offsets(ctx context.Context) (map[int]lua.EntryID, error) {
	partitions := make(map[int]bool)
	for _, one := range r.sent {
		partitions[one.partition] = true
	}
	if len(partitions) == 0 {
		return map[int]lua.EntryID{}, nil
	}
	all, err := offset.Read(ctx, r.db, slices.Collect(maps.Keys(partitions))...)
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

// unsent omits delivered rows whose entries MySQL may still apply.
func (r *Relay) unsent(page []stored.OutboxRow, sent map[string]sentRow, applied map[int]lua.EntryID) []stored.OutboxRow {
	return slices.DeleteFunc(page, func(row stored.OutboxRow) bool {
		one, known := sent[row.ID]
		if !known || !applied[one.partition].Less(one.tip) || time.Since(one.at) > sendAgain {
			return false
		}
		r.sent[row.ID] = one
		return true
	})
}

// Deliver delivers rows, a campaign's in order, and returns how many
// Redis then has. A campaign that fails does not stop the others.
func (r *Relay) Deliver(ctx context.Context, rows []stored.OutboxRow) (applied int, err error) {
	done, _, err := r.deliver(ctx, rows)
	return len(done), err
}

// deliverPending is Deliver for Relay: it records delivered rows, and returns bad ones.
func (r *Relay) deliverPending(ctx context.Context, rows []stored.OutboxRow) (applied int, bad []string, err error) {
	done, bad, err := r.deliver(ctx, rows)
	if len(done) == 0 {
		return 0, bad, err
	}
	byRow := make(map[string]int, len(rows))
	var partitions []int
	for i := range rows {
		byRow[rows[i].ID] = lua.PartitionOf(rows[i].LotID, r.scripts.Partitions())
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

func (r *Relay) deliverDecided(ctx context.Context, decided []heldClaim) error {
	rows := make([]stored.OutboxRow, len(decided))
	for i := range decided {
		rows[i] = decided[i].outbox
	}
	_, _, err := r.deliver(ctx, rows)
	return err
}

// deliver delivers rows, and returns the
// ids of delivered ones and of bad ones.
func (r *Relay) deliver(ctx context.Context, rows []stored.OutboxRow) (done, bad []string, err error) {
	var order []string
	byCampaign := make(map[string][]stored.OutboxRow)
	for i := range rows {
		id := rows[i].LotID
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
			failed = append(failed, err)
			return nil
		})
	}
	_ = g.Wait() // what failed is in failed
	r.steps.At("applied")
	return done, bad, errors.Join(failed...)
}

func (r *Relay) campaigns(ctx context.Context, rows []stored.OutboxRow) (map[string]*models.Campaign, error) {
	known := make(map[string]*models.Campaign)
	var ids []string
	for i := range rows {
		id := rows[i].LotID
		if _, is := known[id]; !is && rows[i].Kind == stored.OutboxRelease {
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

func (r *Relay) measure(ctx context.Context) (isEmpty bool, err error) {
	var rows []stored.OutboxRow
	err = r.db.WithContext(ctx).Raw("SELECT id, created_at FROM outbox ORDER BY id LIMIT 1").Scan(&rows).Error
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

// ResetMetrics sets the outbox's gauges to 0 when another process leads.
func (r *Relay) ResetMetrics() {
	r.metrics.oldest.Set(0)
	r.metrics.damaged.Set(0)
}
