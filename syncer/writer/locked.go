package writer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// When a flush waits in vain for a lock that another transaction holds, it is written again campaign by campaign, with a second
// for each lock. Claims of campaigns that are locked leave the flush and wait in lockedQueue, so that the others go on; one
// goroutine tries them in turn. While a campaign is in the queue its new claims go there at once. Claims in the queue count
// against the claims that the writer holds in memory.

// waiting are the claims of one campaign that left one flush.
type waiting struct {
	rows  []row
	calls int64 // of Submit that wait for them
	since time.Time

	done chan struct{} // closed when err is set
	err  error
}

// lockedQueue holds the claims of campaigns that are locked.
type lockedQueue struct {
	mu      sync.Mutex
	waiting map[string][]*waiting // by campaign; one whose claims are being tried is there, too
	turns   []string              // campaigns to be tried, in order
	busy    bool                  // a goroutine tries them
}

// holdBack moves rows of campaigns that are in the queue from rows to locked.
func (q *lockedQueue) holdBack(rows []*row, locked map[string][]*row) []*row {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return rows
	}
	var left []*row
	for _, r := range rows {
		id := r.event.LotID()
		if _, is := q.waiting[id]; is {
			locked[id] = append(locked[id], r)
		} else {
			left = append(left, r)
		}
	}
	return left
}

// add puts claims into the queue. It returns whether the campaign is new there, and whether a goroutine has to be started.
func (q *lockedQueue) add(campaignID string, claims *waiting) (isNew, start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = make(map[string][]*waiting)
	}
	if _, is := q.waiting[campaignID]; !is {
		isNew = true
		q.turns = append(q.turns, campaignID)
	}
	q.waiting[campaignID] = append(q.waiting[campaignID], claims)
	start = !q.busy
	q.busy = true
	return isNew, start
}

// next returns claims of the campaign whose turn it is, up to limit. Without any the goroutine ends.
func (q *lockedQueue) next(limit int) (campaignID string, claims []*waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		q.busy = false
		return "", nil
	}
	campaignID = q.turns[0]
	q.turns = q.turns[1:]
	all := q.waiting[campaignID]
	n := 0
	rows := 0
	for n < len(all) && (n == 0 || rows+len(all[n].rows) <= limit) {
		rows += len(all[n].rows)
		n++
	}
	return campaignID, slices.Clone(all[:n])
}

// tried takes the first n claims of a campaign out of the queue. It returns whether none are left.
func (q *lockedQueue) tried(campaignID string, n int) (empty bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.waiting[campaignID][n:]
	if len(left) == 0 {
		delete(q.waiting, campaignID)
		return true
	}
	q.waiting[campaignID] = left
	q.turns = append(q.turns, campaignID)
	return false
}

// campaigns is how many are in the queue, and when their oldest claim came.
func (q *lockedQueue) campaigns() (n int, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, all := range q.waiting {
		for _, claims := range all {
			oldest = earlier(oldest, claims.since)
		}
	}
	return len(q.waiting), oldest
}

// writeByCampaign writes rows that met a lock campaign by campaign.
func (w *Writer) writeByCampaign(ctx context.Context, rows []*row, locked map[string][]*row) error {
	byCampaign := make(map[string][]*row)
	for _, r := range rows {
		byCampaign[r.event.LotID()] = append(byCampaign[r.event.LotID()], r)
	}
	for _, id := range slices.Sorted(maps.Keys(byCampaign)) {
		if err := w.writeRows(ctx, &attempt{brief: true, locked: locked}, byCampaign[id], sumOf(byCampaign[id])); err != nil {
			return err
		}
	}
	return nil
}

// queueLocked puts the rows of a flush that met locks into the queue, and tells its cells. It returns how many calls of Submit
// wait for them now.
func (w *Writer) queueLocked(ctx context.Context, b *batch, cells []*cell, locked map[string][]*row) (calls int64) {
	for _, id := range slices.Sorted(maps.Keys(locked)) {
		claims := &waiting{since: b.since, done: make(chan struct{})}
		for _, r := range locked[id] {
			claims.rows = append(claims.rows, *r)
		}
		for _, c := range cells {
			if sum := c.sums[id]; sum != nil {
				c.later = mapped(c.later, id, claims)
				claims.calls = claims.calls + sum.claims + sum.transfers
			}
		}
		calls += claims.calls
		isNew, start := w.locked.add(id, claims)
		if isNew {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "another transaction locks a campaign in MySQL: its claims wait, the others go on;"+
				" information_schema.innodb_trx shows the transaction", slog.String("campaign_id", id))
		}
		if start {
			w.running.Go(func() { w.writeLocked(ctx) })
		}
	}
	return calls
}

func mapped[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = make(map[string]V)
	}
	m[key] = value
	return m
}

// writeLocked tries the claims in the queue until it is empty. It does not pause: each try waits a second for its lock.
func (w *Writer) writeLocked(ctx context.Context) {
	for {
		id, claims := w.locked.next(w.cfg.FlushSize)
		if claims == nil {
			return
		}
		var rows []*row
		for _, c := range claims {
			for i := range c.rows {
				rows = append(rows, &c.rows[i])
			}
		}
		slices.SortFunc(rows, byID)
		rows = slices.CompactFunc(rows, sameClaim)
		again := &attempt{brief: true, locked: make(map[string][]*row)}
		err := w.writeRows(ctx, again, rows, sumOf(rows))
		if err == nil && len(again.locked) > 0 {
			w.locked.tried(id, 0)
			continue
		}
		if w.locked.tried(id, len(claims)) && err == nil {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "a campaign is no longer locked: its claims are written", slog.String("campaign_id", id))
		}
		for _, c := range claims {
			c.err = err
			if err != nil {
				w.metrics.dropped.Add(c.calls)
			}
			close(c.done)
			w.capacity.Release(c.calls)
		}
	}
}

// oldest is when the oldest claim came that the writer holds; zero when it holds none.
func (w *Writer) oldest() time.Time {
	oldest := w.adder.oldest()
	if flushing := w.flushing.Load(); flushing != nil {
		oldest = earlier(oldest, *flushing)
	}
	_, locked := w.locked.campaigns()
	return earlier(oldest, locked)
}

// lockedCampaigns is how many campaigns are locked.
func (w *Writer) lockedCampaigns() int {
	n, _ := w.locked.campaigns()
	return n
}
