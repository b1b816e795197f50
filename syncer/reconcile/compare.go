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

// compareTries bounds the attempts to compare a busy campaign, with a pause between.
const comparePause, compareTries = 20 * time.Millisecond, 5

// Compare compares one campaign. A busy one is compared again until both servers are at one watermark; if that never
// happens the counters and rows of MySQL are compared with each other only. A difference is checked twice. Errors:
// models.ErrNotFound, those of lua.Scripts and of the database.
func (r *Reconciler) Compare(ctx context.Context, campaignID string, depth Depth) (Comparison, error) {
	return r.compare(ctx, campaignID, depth, nil)
}

// compare is Compare, which may begin with a snapshot that was taken before.
func (r *Reconciler) compare(ctx context.Context, campaignID string, depth Depth, first *snapshot) (Comparison, error) {
	confirmed := false
	for try := 1; ; try++ {
		a := attempt{r: r, depth: depth, snap: first}
		first = nil
		settled, err := a.take(ctx, campaignID)
		switch {
		case err != nil:
			return Comparison{}, fmt.Errorf("reconcile: compare %s: %w", campaignID, err)
		case settled && (a.found.Agrees() || confirmed) || try >= compareTries:
			return a.found, nil
		}
		confirmed = settled
		if err := sleep.For(ctx, comparePause); err != nil {
			return Comparison{}, fmt.Errorf("reconcile: compare %s: %w", campaignID, err)
		}
	}
}

// attempt is one attempt to compare a campaign: it reads MySQL first, in one snapshot, then Redis, which is never behind it.
type attempt struct {
	r     *Reconciler
	depth Depth
	snap  *snapshot
	found Comparison
}

// take reports whether another attempt would find the same.
func (a *attempt) take(ctx context.Context, id string) (settled bool, err error) {
	if a.snap == nil {
		a.snap, err = a.r.snapshot(ctx, id, a.depth)
	}
	if err != nil {
		return false, err
	}
	c := &a.snap.campaign
	if c.IsSharded() {
		return true, a.shards(ctx)
	}
	a.found = Comparison{
		CampaignID: c.ID, Residency: c.Residency, Rows: a.snap.rows, Packets: a.snap.packets, Differences: []string{},
		MySQL: MySQLFigures{
			Epoch: c.Epoch, Total: c.Total, Claimed: c.Claimed, Remaining: c.Remaining, SyncedSeq: c.SyncedSeq,
			LostClaims: c.LostClaims, Released: c.ReleasedClaims, Untold: a.snap.untold, ParkedClaims: a.snap.parked.Claims,
			ParkedUnits: a.snap.parked.Units,
		},
	}
	a.found.parked = len(a.snap.parked.All) > 0
	for _, line := range a.snap.parked.Names() {
		a.found.differf("%s", line)
	}
	a.counters()
	if c.Residency == models.ResidencyLost {
		a.found.differInRedisf("takes no claims: %s", c.ResidencyReason)
		return true, nil
	}
	state, err := a.r.scripts.State(ctx, id)
	switch {
	case !campaigns.IsResident(c):
		if err == nil && state.Status != models.StatusLoading {
			a.found.differInRedisf("redis holds load %d, and the campaign is not in redis by the books of mysql", state.Epoch)
		}
		return err != nil, nil // nothing is asked of a redis that need not hold it
	case errors.Is(err, lua.ErrAbsent):
		a.found.differInRedisf("redis does not hold load %d", c.Epoch)
		return false, nil
	case errors.Is(err, lua.ErrDamaged):
		a.found.differInRedisf("%v", err)
		return true, nil
	case err != nil:
		return false, err
	}
	return a.with(ctx, &state)
}

// counters compares MySQL with itself: within a snapshot rows and counters agree, however far MySQL is behind Redis.
func (a *attempt) counters() {
	c := &a.snap.campaign
	if want := max(0, c.Total-c.Claimed); c.Remaining != want && (c.AppliedVersion == c.Version || !campaigns.IsResident(c)) {
		a.found.differf("campaigns.remaining is %d, total less claimed is %d", c.Remaining, want)
	}
	rows := a.snap.rows
	if rows == nil {
		return
	}
	if rows.Claims+c.LostClaims != c.SyncedSeq {
		a.found.differf("campaigns.synced_seq is %d, there are %d rows of claims and %d claims lost", c.SyncedSeq, rows.Claims, c.LostClaims)
	}
	if rows.Units != c.Claimed {
		a.found.differf("campaigns.claimed is %d, the rows of claims are of %d units", c.Claimed, rows.Units)
	}
	if rows.Released != c.ReleasedClaims {
		a.found.differf("campaigns.released_claims is %d, there are %d rows of released claims", c.ReleasedClaims, rows.Released)
	}
	a.owners()
}

// with compares MySQL with the state that Redis holds.
func (a *attempt) with(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &a.snap.campaign
	a.found.Redis = &RedisFigures{
		Epoch: state.Epoch, Status: state.Status, Total: state.Total, Taken: state.Taken, Remaining: state.Remaining(),
		Seq: state.Seq, Released: state.Released,
	}
	known := c.SyncedSeq + a.snap.parked.Claims
	backlog := max(0, state.Seq-known)
	a.found.Backlog = &backlog
	behind := state.Position().Behind(campaigns.Known(c))
	switch {
	case state.Epoch != c.Epoch:
		a.found.differInRedisf("redis holds load %d, mysql knows load %d", state.Epoch, c.Epoch)
		return false, nil // one may be on its way
	case state.Status == models.StatusLoading && isNew(c.ResidencyAt):
		return false, nil
	case state.Status == models.StatusFenced || state.Status == models.StatusLoading:
		a.found.differInRedisf("load %d is %s in redis", state.Epoch, state.Status)
		return false, nil
	case behind != "":
		a.found.differInRedisf("redis was rolled back: %s", behind)
	case state.Seq > known:
		return a.behind(ctx, state)
	case state.Seq < known:
		a.found.differInRedisf("redis holds %d claims, mysql %d", state.Seq, known)
	case state.Released != c.ReleasedClaims:
		return a.releases(ctx, state)
	case models.IsShardID(c.ID) && state.Meta.Kind != models.KindPacket && state.Total != c.Total:
		return a.moves(ctx, state)
	}
	if state.Version > c.Version {
		if err := a.newer(ctx, state); err != nil {
			return false, err
		}
	}
	a.drift(state)
	if state.Seq == known && a.depth >= DepthRows {
		return a.records(ctx, state)
	}
	return true, nil
}

// loadTime is what a load may take from its confirmation in MySQL until it is open in Redis. It brings the packets then.
const loadTime = 2 * time.Minute

// isNew reports whether a load that was confirmed at some time may be under way still.
func isNew(confirmed *time.Time) bool { return confirmed != nil && time.Since(*confirmed) < loadTime }

// newer distinguishes a change that came in the meantime from one that MySQL has lost: MySQL knows of each before Redis does.
func (a *attempt) newer(ctx context.Context, state *lua.State) error {
	now, err := campaigns.Read(a.r.db.WithContext(ctx), a.snap.campaign.ID)
	if err == nil && now.Epoch == state.Epoch && now.Version < state.Version {
		a.found.differInRedisf("redis works by definition %d, the newest that mysql knows is %d", state.Version, now.Version)
	}
	return err
}

// drift compares the units.
func (a *attempt) drift(state *lua.State) {
	c := &a.snap.campaign
	claimed := c.Claimed + a.snap.parked.Units
	books := campaigns.BooksOf(c, a.snap.parked)
	drift := state.Drift(&books)
	if state.SameDefinition(&books) && state.Total != c.Total {
		a.found.differInRedisf("redis has a total of %d, mysql of %d", state.Total, c.Total)
	}
	if state.Taken != claimed {
		a.found.differInRedisf("redis has %d units taken, mysql %d claimed", state.Taken, claimed)
	}
	if drift == 0 && a.snap.rows != nil {
		drift = a.snap.rows.Units + a.snap.parked.Units - state.Taken
	}
	a.found.Drift = &drift
}

// moves distinguishes moves of units that are on their way to MySQL from those that never get there, see behind.
func (a *attempt) moves(ctx context.Context, state *lua.State) (settled bool, err error) {
	now, isRead, err := a.whenRead(ctx)
	if err != nil || !isRead {
		return false, err
	}
	again, err := a.r.scripts.State(ctx, now.ID)
	if err == nil && again.Epoch == now.Epoch && again.Total == state.Total && again.Shares == state.Shares && now.Total != state.Total {
		a.found.differInRedisf("redis has a total of %d, mysql of %d and nothing is on its way", state.Total, now.Total)
	}
	return false, err
}

// whenRead reads the campaign once more, if MySQL has applied all that the stream holds now.
func (a *attempt) whenRead(ctx context.Context) (now models.Campaign, isRead bool, err error) {
	c := &a.snap.campaign
	isComplete, err := a.r.hydrator.IsComplete(ctx, c.ID)
	if err != nil || !isComplete {
		return now, false, err
	}
	now, err = campaigns.Read(a.r.db.WithContext(ctx), c.ID)
	return now, err == nil, err
}

// behind distinguishes claims that are on their way to MySQL from those that never get there: when MySQL has applied all
// that the stream held after the state was read, and MySQL lacks some still, they are none of the former.
func (a *attempt) behind(ctx context.Context, state *lua.State) (settled bool, err error) {
	if a.depth < DepthRows {
		return false, nil
	}
	c := &a.snap.campaign
	now, isRead, err := a.whenRead(ctx)
	if !isRead || now.Epoch != state.Epoch || now.SyncedSeq+a.snap.parked.Claims >= state.Seq {
		return false, err
	}
	parked, err := a.r.hydrator.Parked(ctx, c.ID) // what was on its way may be parked by now
	if err != nil || parked.Claims != a.snap.parked.Claims {
		return false, err
	}
	records, err := a.r.scripts.CountClaimRecords(ctx, c.ID)
	if err != nil {
		return false, err
	}
	a.found.differf("redis accepted %d claims, mysql counts %d and nothing is on its way", state.Seq, now.SyncedSeq)
	a.drift(state)
	if records+c.LostClaims+a.snap.rows.Archived != state.Seq { // else Redis has a record of each: mysql lacks claims
		a.found.inRedis = []string{c.ID}
	}
	return true, nil
}
