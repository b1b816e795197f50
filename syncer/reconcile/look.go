package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// A busy campaign is looked at so often, with a pause between.
const comparePause, compareTries = 20 * time.Millisecond, 5

// Compare looks at one campaign. A busy one is looked at a few times until both servers are at one watermark; if that never
// happens the counters and rows of MySQL are compared with each other only. A difference is looked at twice. Errors:
// models.ErrNotFound, those of lua.Scripts and of the database.
func (r *Reconciler) Compare(ctx context.Context, campaignID string, depth Depth) (Comparison, error) {
	return r.compare(ctx, campaignID, depth, nil)
}

// compare is Compare, which may begin with a snapshot that was taken before.
func (r *Reconciler) compare(ctx context.Context, campaignID string, depth Depth, first *snapshot) (Comparison, error) {
	confirmed := false
	for try := 1; ; try++ {
		l := look{r: r, depth: depth, snap: first}
		first = nil
		settled, err := l.take(ctx, campaignID)
		switch {
		case err != nil:
			return Comparison{}, fmt.Errorf("reconcile: compare %s: %w", campaignID, err)
		case settled && (l.found.Agrees() || confirmed) || try >= compareTries:
			return l.found, nil
		}
		confirmed = settled
		if err := sleep.For(ctx, comparePause); err != nil {
			return Comparison{}, fmt.Errorf("reconcile: compare %s: %w", campaignID, err)
		}
	}
}

// look is one look at a campaign: MySQL first, by one snapshot, then Redis, which is never behind it.
type look struct {
	r     *Reconciler
	depth Depth
	snap  *snapshot
	found Comparison
}

// take returns whether another look would hardly tell more.
func (l *look) take(ctx context.Context, id string) (settled bool, err error) {
	if l.snap == nil {
		l.snap, err = l.r.snapshot(ctx, id, l.depth)
	}
	if err != nil {
		return false, err
	}
	c := &l.snap.campaign
	if c.IsSharded() {
		return true, l.shards(ctx)
	}
	l.found = Comparison{
		CampaignID: c.ID, Residency: c.Residency, Rows: l.snap.rows, Packets: l.snap.packets, Differences: []string{},
		MySQL: MySQLFigures{
			Epoch: c.Epoch, Total: c.Total, Claimed: c.Claimed, Remaining: c.Remaining, SyncedSeq: c.SyncedSeq,
			LostClaims: c.LostClaims, Released: c.ReleasedClaims, Untold: l.snap.untold, ParkedClaims: l.snap.parked.Claims,
			ParkedUnits: l.snap.parked.Units,
		},
	}
	l.found.parked = len(l.snap.parked.All) > 0
	for _, line := range l.snap.parked.Names() {
		l.found.differf("%s", line)
	}
	l.counters()
	if c.Residency == models.ResidencyLost {
		l.found.differInRedisf("takes no claims: %s", c.ResidencyReason)
		return true, nil
	}
	state, err := l.r.scripts.State(ctx, id)
	switch {
	case !campaigns.IsResident(c):
		if err == nil && state.Status != models.StatusLoading {
			l.found.differInRedisf("redis holds load %d, and the campaign is not in redis by the books of mysql", state.Epoch)
		}
		return err != nil, nil // nothing is asked of a redis that need not hold it
	case errors.Is(err, lua.ErrAbsent):
		l.found.differInRedisf("redis does not hold load %d", c.Epoch)
		return false, nil
	case errors.Is(err, lua.ErrDamaged):
		l.found.differInRedisf("%v", err)
		return true, nil
	case err != nil:
		return false, err
	}
	return l.with(ctx, &state)
}

// counters compares MySQL with itself: within a snapshot rows and counters agree, however far MySQL is behind Redis.
func (l *look) counters() {
	c := &l.snap.campaign
	if want := max(0, c.Total-c.Claimed); c.Remaining != want && (c.AppliedVersion == c.Version || !campaigns.IsResident(c)) {
		l.found.differf("campaigns.remaining is %d, total less claimed is %d", c.Remaining, want)
	}
	rows := l.snap.rows
	if rows == nil {
		return
	}
	if rows.Claims+c.LostClaims != c.SyncedSeq {
		l.found.differf("campaigns.synced_seq is %d, there are %d rows of claims and %d claims lost", c.SyncedSeq, rows.Claims, c.LostClaims)
	}
	if rows.Units != c.Claimed {
		l.found.differf("campaigns.claimed is %d, the rows of claims are of %d units", c.Claimed, rows.Units)
	}
	if rows.Released != c.ReleasedClaims {
		l.found.differf("campaigns.released_claims is %d, there are %d rows of released claims", c.ReleasedClaims, rows.Released)
	}
	l.owners()
}

// with compares MySQL with the state that Redis holds.
func (l *look) with(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &l.snap.campaign
	l.found.Redis = &RedisFigures{
		Epoch: state.Epoch, Status: state.Status, Total: state.Total - state.Owed, Taken: state.Taken, Remaining: state.Remaining(),
		Seq: state.Seq, Released: state.Released,
	}
	known := c.SyncedSeq + l.snap.parked.Claims
	backlog := max(0, state.Seq-known)
	l.found.Backlog = &backlog
	behind := state.Position().Behind(campaigns.Known(c))
	switch {
	case state.Epoch != c.Epoch:
		l.found.differInRedisf("redis holds load %d, mysql knows load %d", state.Epoch, c.Epoch)
		return false, nil // one may be on its way
	case state.Status == models.StatusLoading && isNew(c.ResidencyAt):
		return false, nil
	case state.Status == models.StatusFenced || state.Status == models.StatusLoading:
		l.found.differInRedisf("load %d is %s in redis", state.Epoch, state.Status)
		return false, nil
	case behind != "":
		l.found.differInRedisf("redis was rolled back: %s", behind)
	case state.Seq > known:
		return l.behind(ctx, state)
	case state.Seq < known:
		l.found.differInRedisf("redis holds %d claims, mysql %d", state.Seq, known)
	case state.Released != c.ReleasedClaims:
		return l.releases(ctx, state)
	case state.TSeq != c.TSeq:
		return l.transfers(ctx, state)
	}
	if state.Version > c.Version {
		if err := l.newer(ctx, state); err != nil {
			return false, err
		}
	}
	l.drift(state)
	if state.Seq == known && l.depth >= DepthRows {
		return l.records(ctx, state)
	}
	return true, nil
}

// loadTime is what a load may take from its confirmation in MySQL until it is open in Redis. It brings the packets then.
const loadTime = 2 * time.Minute

// isNew reports whether a load that was confirmed at some time may be under way still.
func isNew(confirmed *time.Time) bool { return confirmed != nil && time.Since(*confirmed) < loadTime }

// newer tells a change that came in the meantime from one that MySQL has lost: MySQL knows of each before Redis does.
func (l *look) newer(ctx context.Context, state *lua.State) error {
	now, err := campaigns.Read(l.r.db.WithContext(ctx), l.snap.campaign.ID)
	if err == nil && now.Epoch == state.Epoch && now.Version < state.Version {
		l.found.differInRedisf("redis works by definition %d, the newest that mysql knows is %d", state.Version, now.Version)
	}
	return err
}

// drift compares the units.
func (l *look) drift(state *lua.State) {
	c := &l.snap.campaign
	claimed := c.Claimed + l.snap.parked.Units
	books := campaigns.BooksOf(c, l.snap.parked)
	drift := state.Drift(&books)
	if total := state.Total - state.Owed; state.SameDefinition(&books) && total != c.Total && !l.isEndedLot() {
		l.found.differInRedisf("redis has a total of %d, mysql of %d", total, c.Total)
	}
	if state.Taken != claimed {
		l.found.differInRedisf("redis has %d units taken, mysql %d claimed", state.Taken, claimed)
	}
	if drift == 0 && l.snap.rows != nil {
		drift = l.snap.rows.Units + l.snap.parked.Units - state.Taken
	}
	l.found.Drift = &drift
}

// transfers tells debits and credits that are on their way to MySQL from those that never get there, see behind.
func (l *look) transfers(ctx context.Context, state *lua.State) (settled bool, err error) {
	now, isRead, err := l.whenRead(ctx)
	if isRead && now.Epoch == state.Epoch && now.TSeq < state.TSeq {
		l.found.differInRedisf("redis counts %d debits and credits of units, mysql %d and nothing is on its way", state.TSeq, now.TSeq)
		l.found.unbooked = map[string]int64{now.ID: l.snap.campaign.Epoch}
	}
	return false, err
}

// whenRead reads the campaign once more, if the group has acknowledged all that the stream holds now.
func (l *look) whenRead(ctx context.Context) (now models.Campaign, isRead bool, err error) {
	c := &l.snap.campaign
	stream, err := l.r.scripts.Stream(ctx, c.Partition)
	if err != nil {
		return now, false, err
	}
	unread, err := l.r.scripts.Unread(ctx, c.Partition, models.GroupSyncer)
	if err != nil || !unread.Upto(stream.Tip) {
		return now, false, err
	}
	now, err = campaigns.Read(l.r.db.WithContext(ctx), c.ID)
	return now, err == nil, err
}

// behind tells claims that are on their way to MySQL from those that never get there: when the group has acknowledged all
// that the stream held after the state was read, and MySQL lacks some still, they are none of the former.
func (l *look) behind(ctx context.Context, state *lua.State) (settled bool, err error) {
	if l.depth < DepthRows {
		return false, nil
	}
	c := &l.snap.campaign
	now, isRead, err := l.whenRead(ctx)
	if !isRead || now.Epoch != state.Epoch || now.SyncedSeq+l.snap.parked.Claims >= state.Seq {
		return false, err
	}
	parked, err := l.r.hydrator.Parked(ctx, c.ID) // what was on its way may be parked by now
	if err != nil || parked.Claims != l.snap.parked.Claims {
		return false, err
	}
	records, err := l.r.scripts.CountClaimRecords(ctx, c.ID)
	if err != nil {
		return false, err
	}
	l.found.differf("redis accepted %d claims, mysql counts %d and nothing is on its way", state.Seq, now.SyncedSeq)
	l.drift(state)
	if records+c.LostClaims+l.snap.rows.Archived != state.Seq { // else Redis has a record of each: mysql lacks claims
		l.found.inRedis = []string{c.ID}
	}
	return true, nil
}
