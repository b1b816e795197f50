package resolve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	expireBatch     = 200             // claims of one transaction: a few hundredths of a second of work
	expireRest      = 9               // after a full batch its campaign waits so many times as long as it took: claims come first
	expireRestMax   = 5 * time.Second // after one batch
	expireFullEvery = time.Minute     // how often all claims of a campaign are looked at, due or not by their place
	expireFinalLook = time.Hour       // how often a campaign is looked at in which nothing can expire any more
	expireChunk     = 5000            // places of the order that are looked at together
	chunksAhead     = 1               // chunks that are looked at behind the first with a claim that is not due
	campaignsPage   = 1000            // campaigns that are read at a time
)

// Expirer releases claims that nobody redeemed in time, by the clock that they were made by, which is Redis'. Expire is for one
// goroutine; several processes at once do no harm.
//
// A claim's place says whether it can be due: in the order of a campaign the times of claims grow, and its hold never changes. So
// a look begins behind the last place that is final, and ends soon behind the first claim that is not due. When Redis' clock
// stepped back, claims stand behind later ones: the look finds them as it gets there, or the full look does that follows now and
// then. A campaign is looked at when claims have come, or when the earliest of those that were there is due.
type Expirer struct {
	relay   *Relay
	expired prometheus.Counter
	cursors map[string]*expiryCursor // by campaign
	last    string                   // the campaign that had the last turn

	batchSize int           // is expireBatch, but in tests
	rest      int           // is expireRest, but in tests
	chunkSize int64         // is expireChunk, but in tests
	fullEvery time.Duration // is expireFullEvery, but in tests
	steps     steps.Steps
}

// expiryCursor is what is known of a campaign from earlier looks.
type expiryCursor struct {
	final  int64     // each place up to there has its row, and none can expire any more
	fullAt time.Time // by Redis' clock
	synced int64     // synced_seq before the last look: while it stays, no claim has come
	next   time.Time // no claim of then is due before, by Redis' clock
	rested time.Time // the next batch waits until then, by this process' clock
}

// NewExpirer makes an expirer whose decisions relay applies to Redis; reg may be nil.
func NewExpirer(relay *Relay, reg prometheus.Registerer) *Expirer {
	return &Expirer{
		relay: relay, cursors: make(map[string]*expiryCursor),
		batchSize: expireBatch, rest: expireRest, chunkSize: expireChunk, fullEvery: expireFullEvery,
		expired: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dibs_claims_expired_total", Help: "Claims that nobody redeemed in time and that this process released.",
		}),
	}
}

// heldCampaign is a campaign whose claims expire.
type heldCampaign struct {
	ID        string
	HoldForMs int64
	SyncedSeq int64
}

// Expire releases what is due and returns how many claims that was. Each campaign has one batch in turn, from the one behind
// that with which the last round ended, and again as long as any has more. A failure is returned after the others had their
// turn.
func (e *Expirer) Expire(ctx context.Context) (expired int, err error) {
	for wait := time.Duration(1); wait > 0; {
		var n int
		n, wait, err = e.pass(ctx)
		expired += n
		if err == nil && wait > 0 {
			err = sleep.For(ctx, wait)
		}
		if err != nil {
			return expired, fmt.Errorf("resolve: expire: %w", err)
		}
	}
	return expired, nil
}

// pass gives each campaign a turn. wait is how long until the next pass has something to do; 0 is that none has more.
func (e *Expirer) pass(ctx context.Context) (expired int, wait time.Duration, err error) {
	now, err := e.relay.scripts.Now(ctx)
	if err != nil {
		return 0, 0, err
	}
	all, err := e.campaigns(ctx)
	if err != nil {
		return 0, 0, err
	}
	var failed []error
	for i := range all {
		n, w, err := e.turn(ctx, &all[i], now)
		expired += n
		if ctx.Err() != nil {
			return expired, 0, context.Cause(ctx)
		}
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		if err != nil && len(failed) < sqlstore.PageSize {
			failed = append(failed, err)
		}
	}
	return expired, wait, errors.Join(failed...)
}

// campaigns are those with claims that may expire, in order of their ids, the one behind the last turn first.
func (e *Expirer) campaigns(ctx context.Context) ([]heldCampaign, error) {
	var before, after []heldCampaign
	there := make(map[string]bool, len(e.cursors))
	fetch := func(after string) (page []heldCampaign, err error) {
		err = e.relay.db.WithContext(ctx).Raw("SELECT id, hold_for_ms, synced_seq FROM campaigns"+
			" WHERE id > ? AND hold_for_ms > 0 AND synced_seq > 0 ORDER BY id LIMIT ?", after, campaignsPage).Scan(&page).Error
		return page, err
	}
	for page, err := range sqlstore.Pages(campaignsPage, func(c *heldCampaign) string { return c.ID }, fetch) {
		if err != nil {
			return nil, err
		}
		for i := range page {
			there[page[i].ID] = true
			if page[i].ID > e.last {
				after = append(after, page[i])
			} else {
				before = append(before, page[i])
			}
		}
	}
	maps.DeleteFunc(e.cursors, func(id string, _ *expiryCursor) bool { return !there[id] })
	return append(after, before...), nil
}

// turn releases up to a batch of a campaign's claims, or somewhat more if they are far apart. wait is how long until its next
// turn; 0 is that nothing more is due.
func (e *Expirer) turn(ctx context.Context, c *heldCampaign, now time.Time) (expired int, wait time.Duration, err error) {
	cursor := e.cursors[c.ID]
	if cursor == nil {
		cursor = &expiryCursor{}
		e.cursors[c.ID] = cursor
	}
	if c.SyncedSeq == cursor.synced && now.Before(cursor.next) && !now.Before(cursor.fullAt) {
		return 0, 0, nil
	}
	if wait = time.Until(cursor.rested); wait > 0 {
		return 0, wait, nil
	}
	e.last = c.ID
	e.steps.At("turn")
	begun := time.Now()
	expired, more, err := e.look(ctx, c, cursor, now)
	if err != nil || !more {
		return expired, 0, err
	}
	took := max(time.Since(begun), time.Nanosecond)
	wait = max(min(expireRestMax, time.Duration(e.rest)*took), time.Nanosecond)
	cursor.rested = time.Now().Add(wait)
	return expired, wait, nil
}

// look goes over a campaign chunk by chunk. more is true when it stopped at a full batch.
func (e *Expirer) look(ctx context.Context, c *heldCampaign, cursor *expiryCursor, now time.Time) (expired int, more bool, err error) {
	full := now.Sub(cursor.fullAt) >= e.fullEvery || now.Before(cursor.fullAt)
	holdFor := time.Duration(c.HoldForMs) * time.Millisecond
	last, err := e.lastPlace(ctx, c.ID)
	if err != nil {
		return 0, false, err
	}
	next, ahead := now.Add(expireFinalLook), 0
	for from := cursor.final; from < last && ahead <= chunksAhead; from += e.chunkSize {
		n, found, err := e.batch(ctx, c.ID, from, now.Add(-holdFor))
		expired += n
		if err != nil || found >= e.batchSize {
			return expired, err == nil, err
		}
		rows, open, first, err := e.left(ctx, c.ID, from)
		switch {
		case err != nil:
			return expired, false, err
		case from == cursor.final && rows == e.chunkSize && open == 0:
			cursor.final += e.chunkSize
		case open > 0:
			if due := first.Add(holdFor); due.Before(next) {
				next = due
			}
			if !full {
				ahead++
			}
		}
	}
	if full {
		cursor.fullAt = now
	}
	if again := cursor.fullAt.Add(e.fullEvery); ahead > chunksAhead && again.Before(next) {
		next = again // what stands behind may be due before
	}
	cursor.synced, cursor.next = c.SyncedSeq, next
	return expired, false, nil
}

func (e *Expirer) lastPlace(ctx context.Context, id string) (last int64, err error) {
	err = e.relay.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(seq), 0) FROM claims WHERE campaign_id = ? AND shard = 0", id).Scan(&last).Error
	if err != nil {
		return 0, fmt.Errorf("resolve: expire %s: %w", id, err)
	}
	return last, nil
}

// left counts what a chunk holds: rows, and claims among them that may expire yet, with the time of the first of these.
func (e *Expirer) left(ctx context.Context, id string, from int64) (rows, open int64, first time.Time, err error) {
	const chunk = " FROM claims WHERE campaign_id = ? AND shard = 0 AND seq > ? AND seq <= ?"
	db, upto := e.relay.db.WithContext(ctx), from+e.chunkSize
	err = db.Raw("SELECT COUNT(*), COALESCE(SUM(CASE WHEN status = ? THEN 1 ELSE 0 END), 0)"+chunk, models.ClaimClaimed, id, from, upto).
		Row().Scan(&rows, &open)
	if err == nil && open > 0 {
		var times []time.Time // none, if they were all redeemed just now
		err = db.Raw("SELECT claimed_at"+chunk+" AND status = ? ORDER BY claimed_at LIMIT 1", id, from, upto, models.ClaimClaimed).
			Scan(&times).Error
		for _, at := range times {
			first = at
		}
	}
	if err != nil {
		return 0, 0, first, fmt.Errorf("resolve: expire %s: %w", id, err)
	}
	return rows, open, first, nil
}
