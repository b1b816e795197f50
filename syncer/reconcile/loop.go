package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// A round compares so many campaigns whose books have moved since they were compared last, and so many others: a round costs what
// moved, not what exists, and a comparison of ten thousand campaigns is spread over minutes.
const maxMoved, maxStill = 1000, 30

// maxRest is for how many rounds the books are not read again when none moved, of more than have their turn in one round, and nothing was
// flushed. What moves books without a flush (a release, a change) waits for so long.
const maxRest = 15

// past is what is known of a campaign from rounds before.
type past struct {
	round     int                   // that it was last met in
	books     books                 // as they were then
	moved     bool                  // since it was compared
	depth     Depth                 // of the comparison under way
	row       models.Reconciliation // the last that was written
	countedAt time.Time
	differs   bool  // when its rows were last counted, or by its books now
	drift     int64 // then
	backlog   int64 // claims, when it was compared
	written   int   // rows since the last prune, and one
}

// books are the counters that move when something happens to a campaign.
type books struct {
	Epoch, Version, SyncedSeq, Claimed, ReleasedClaims, LostClaims, SeenSeq, Remaining int64
}

// Reconcile goes once over the books of all campaigns that are in Redis, compares those that moved and some of the others in turn,
// records what it finds in reconciliations, and returns how many differ. The counters are compared each time, the rows now and then.
// It repairs nothing: lots that differ in Redis are queued for the maintainer. A failure is returned after the others had their turn.
func (r *Reconciler) Reconcile(ctx context.Context) (differ int, err error) {
	moved, still, err := r.lists(ctx)
	if err != nil {
		return 0, fmt.Errorf("reconcile: %w", err)
	}
	var rows []models.Reconciliation
	var failed []error
	for ids := range slices.Chunk(append(r.moved.next(moved, maxMoved), r.still.next(still, maxStill)...), sqlstore.PageSize) {
		first, err := r.ahead(ctx, ids)
		if err != nil {
			failed = append(failed, err)
			for _, id := range ids {
				r.past[id].moved = true
			}
			break
		}
		for _, id := range ids {
			if err := r.reconcile(ctx, id, first[id], &rows); err != nil && !errors.Is(err, models.ErrNotFound) {
				failed = append(failed, err)
			}
			if ctx.Err() != nil {
				return 0, fmt.Errorf("reconcile: %w", context.Cause(ctx))
			}
		}
	}
	failed = append(failed, r.record(ctx, rows))
	sum := r.sum()
	r.metrics.set(sum)
	return int(sum.differ), errors.Join(failed...)
}

// lists returns the ids of the campaigns that moved and of the others. It reads the books, unless that may rest.
func (r *Reconciler) lists(ctx context.Context) (moved, still []string, err error) {
	var flushed string
	if err := sqlstore.On(r.db.WithContext(ctx)).Scan(&flushed, "SELECT COALESCE(MAX(id), '') FROM stock_flushes"); err != nil {
		return nil, nil, err
	}
	if r.rest > 0 && flushed == r.flushed {
		r.rest--
		return nil, r.resting, nil
	}
	r.flushed = flushed
	r.round++
	known := len(r.past)
	moved, still, err = r.meetAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(r.past, func(_ string, p *past) bool { return p.round != r.round })
	r.resting = nil
	if len(moved) == 0 && len(still) > maxStill && len(still) == known {
		r.rest = maxRest
		r.resting = still
	}
	return moved, still, nil
}

// meetAll reads the books of all campaigns that are in Redis by them, and returns the ids of those that moved and of the others.
func (r *Reconciler) meetAll(ctx context.Context) (moved, still []string, err error) {
	err = sqlstore.ScanAll(ctx, r.db.ConnPool, "SELECT id, epoch, version, synced_seq, claimed, released_claims, lost_claims,"+
		" seen_seq, remaining FROM campaigns WHERE residency = ? OR shards > 1 ORDER BY id",
		[]any{models.ResidencyResident}, func(scan func(...any) error) error {
			var id string
			var b books
			err := scan(&id, &b.Epoch, &b.Version, &b.SyncedSeq, &b.Claimed, &b.ReleasedClaims, &b.LostClaims, &b.SeenSeq, &b.Remaining)
			switch {
			case err != nil:
				return err
			case r.meet(id, b):
				moved = append(moved, id)
			default:
				still = append(still, id)
			}
			return nil
		})
	return moved, still, err
}

// meet remembers the books of a campaign, and reports whether it is to be compared because they moved, or because something was not
// as it should be when it was compared last. One that is met for the first time waits for its turn.
func (r *Reconciler) meet(id string, b books) (moved bool) {
	p := r.past[id]
	if p == nil {
		p = &past{books: b}
		r.past[id] = p
	}
	p.moved = p.moved || p.books != b
	p.round = r.round
	p.books = b
	return p.moved || p.differs || p.backlog > 0
}

// sum adds up what is known of all campaigns.
func (r *Reconciler) sum() (sum sums) {
	for _, p := range r.past {
		sum.backlog += p.backlog
		if p.differs {
			sum.differ++
			sum.drift += max(p.drift, -p.drift)
		}
	}
	return sum
}

// roundRobin takes a list in turns.
type roundRobin struct{ last string } // that had its turn

// next returns up to most of the ids, which are sorted: those behind the turn before, and then from the first on.
func (t *roundRobin) next(ids []string, most int) []string {
	n := min(most, len(ids))
	if n == 0 {
		return nil
	}
	from, met := slices.BinarySearch(ids, t.last)
	if met {
		from++
	}
	chosen := slices.Concat(ids[from:], ids[:from])[:n]
	t.last = chosen[n-1]
	return chosen
}

// ahead reads campaigns that are about to be compared, by one statement for each depth.
func (r *Reconciler) ahead(ctx context.Context, ids []string) (map[string]*snapshot, error) {
	all := make(map[string]*snapshot, len(ids))
	byDepth := make(map[Depth][]string)
	for _, id := range ids {
		p := r.past[id]
		p.depth = DepthBooks
		every := r.countEvery
		if p.differs {
			every /= 6 // so that what was put right is told soon
		}
		if time.Since(p.countedAt) >= every {
			p.depth = DepthRows
		}
		p.moved = false // what moves from here on is seen by the next round
		byDepth[p.depth] = append(byDepth[p.depth], id)
	}
	for depth, some := range byDepth {
		plain, err := r.snapshots(ctx, some, depth)
		if err != nil {
			return nil, fmt.Errorf("reconcile: %w", err)
		}
		maps.Copy(all, plain)
	}
	return all, nil
}

// reconcile compares one campaign, and adds to rows what is to be written down because it is new.
func (r *Reconciler) reconcile(ctx context.Context, id string, first *snapshot, rows *[]models.Reconciliation) error {
	p := r.past[id]
	counts := p.depth == DepthRows
	found, err := r.compare(ctx, id, p.depth, first)
	if err != nil {
		p.moved = true
		r.rest = 0
		return err
	}
	for _, lot := range found.inRedis {
		r.hydrator.Queue(lot)
	}
	r.learn(ctx, &found, p, counts)
	row := rowOf(&found)
	p.backlog = 0
	if found.Backlog != nil {
		p.backlog = *found.Backlog
	}
	if p.differs || p.backlog > 0 {
		r.rest = 0
	}
	if p.differs && row.Drift != nil && *row.Drift == 0 {
		row.Drift = new(p.drift) // of the rows, which are not counted each time
	}
	if !sameFigures(row, p.row) || row.At.Sub(p.row.At) >= recordEvery {
		*rows = append(*rows, row)
	}
	return nil
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
	p.differs = !found.Agrees()
	p.drift = 0
	if p.differs && found.Drift != nil {
		p.drift = *found.Drift
	}
}
