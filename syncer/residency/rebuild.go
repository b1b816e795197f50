package residency

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
	"dibs/syncer/writer"

	"gorm.io/gorm"
)

// rebuildPage is how many rows a rebuild stages before it names a step.
const rebuildPage = 5000

// RebuildReport says what a rebuild loaded into Redis.
type RebuildReport struct {
	Epoch      int64 // the new load; 0 when there was nothing to do
	Claims     int64 // that were loaded: those with rows, and parked ones
	Units      int64 // of live claims
	LostClaims int64 // claims known to be lost, ever: places in the campaign's order that have no row and never will
}

// books are the counters of a load's snapshot, and what to correct in them.
type books struct {
	snap         models.Campaign
	synced, lost int64 // as they ought to be
	moreUnits    int64 // to add to claimed
	moreReleases int64 // to add to released_claims

	moved *moved // of a lot of a campaign of several shards
}

// Rebuild fences a campaign and loads it again from its rows in MySQL, under a new epoch. It wants no proof that the rows are all there
// are, as Hydrate does, but waits until each claim in the claim stream has its row, and fails with ErrUnsynced when that does not
// happen; and it gives up no claim that the books count, but fails with ErrMissing. Errors: models.ErrNotFound, campaigns.ErrPartitions,
// and those of lua.Scripts.
func (h *Hydrator) Rebuild(ctx context.Context, campaignID string) (report RebuildReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, hydrateTimeout)
	defer cancel()
	for range maxSteps {
		o, err := h.stopped(ctx, campaignID, "a rebuild was asked for")
		if err != nil {
			return report, err
		}
		step := recovery.Step{Action: recovery.Load, Epoch: 1 + max(o.MySQL.LoadAttempts, o.Redis.At.Epoch)}
		report, done, err := h.rebuild(ctx, o, step, true)
		if err == nil && done {
			err = h.applier.Apply(ctx, campaignID)
		}
		if err != nil || done {
			return report, err
		}
		if err := sleep.For(ctx, loaderPoll); err != nil { // its counters changed, or another loads it
			return report, wrapped(err, campaignID)
		}
	}
	return report, fmt.Errorf("%w: %s: it changed during each of %d loads: try again", lua.ErrUnavailable, campaignID, maxSteps)
}

// Stop has a campaign take no claims, and waits until each claim that it took has its row or is parked. Rebuild brings it back; so does
// any process that proves that nothing is missing. Errors as Rebuild.
func (h *Hydrator) Stop(ctx context.Context, campaignID string) error {
	_, err := h.stopped(ctx, campaignID, "a repair was asked for")
	return err
}

// stopped is a lot that takes no claims, and of which each claim that the claim stream holds has its row or is parked.
func (h *Hydrator) stopped(ctx context.Context, id, reason string) (*lot, error) {
	for range maxSteps {
		o, err := h.observeIntact(ctx, id)
		if err != nil {
			return nil, err
		}
		isCopy := o.Redis.Held == recovery.Present && o.Redis.Status == models.StatusLoading
		switch {
		case o.IsTaking(), isCopy && o.MySQL.Residency == models.ResidencyResident:
			err = h.fence(ctx, o)
		case o.MySQL.Residency != models.ResidencyLost, o.MySQL.FenceTip == nil:
			_, err = h.markLost(ctx, o, reason)
		default:
			err = h.acknowledged(ctx, o)
			if errors.Is(err, ErrUnsynced) {
				return nil, fmt.Errorf("%w; %s takes no claims now: when the consumers have caught up it comes back by itself if its rows"+
					" add up; else repair it again", err, id)
			}
			return o, err
		}
		if err != nil && !errors.Is(err, lua.ErrOther) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: %s: it changed during each of %d steps: try again", lua.ErrUnavailable, id, maxSteps)
}

// rebuild takes steps 1 to 4 of a load, or confirms a copy. Of a lost campaign, which is fenced, it overwrites what Redis holds. force
// takes the rows for the truth even if they do not add up to the books or claims are known to be lost, and corrects the books. done is
// false when the books changed, or another process loads the lot.
func (h *Hydrator) rebuild(ctx context.Context, o *lot, step recovery.Step, force bool) (report RebuildReport, done bool, err error) {
	c := &o.row
	campaignID, shard := models.SplitShardID(c.ID)
	if shard > 0 { // a load of a lot has to know of each that was started of its peers
		turn, _ := h.lots.LoadOrStore(campaignID, make(chan struct{}, 1))
		if err := take(ctx, turn.(chan struct{}), c.ID); err != nil { //nolint:forcetypeassert // stored here alone
			return report, false, err
		}
		defer func() { <-turn.(chan struct{}) }() //nolint:forcetypeassert // stored here alone
	}
	if err := take(ctx, h.loads, c.ID); err != nil {
		return report, false, err
	}
	defer func() { <-h.loads }()
	begun := time.Now()
	loader := rand.Text()
	isLoader, err := h.begin(ctx, o, loader, step.Epoch)
	if err != nil || !isLoader {
		return report, false, err
	}
	ctx, stopRenewing := h.renew(ctx, campaignID, loader)
	defer func() {
		stopRenewing()
		if !done || shard > 0 {
			_ = sqlstore.On(h.db.WithContext(context.WithoutCancel(ctx))). // else its time runs out
											Run("UPDATE lots SET loader = '' WHERE id = ? AND loader = ?", campaignID, loader)
		}
	}()
	h.steps.At("numbered")
	loaded := &books{snap: c.Campaign, synced: c.SyncedSeq, lost: c.LostClaims} // of a copy
	report = RebuildReport{Epoch: step.Epoch, Claims: c.SyncedSeq - c.LostClaims, Units: c.Claimed, LostClaims: c.LostClaims}
	if step.Action == recovery.Load {
		loaded, err = h.put(ctx, o, &report, force)
		if err != nil {
			return report, false, err
		}
	}
	done, err = h.confirm(ctx, o, loaded, loader, step.Epoch)
	if err != nil || !done {
		return report, false, err
	}
	report.LostClaims = loaded.lost
	h.seconds.Observe(time.Since(begun).Seconds())
	h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", c.ID),
		slog.Int64("epoch", step.Epoch), slog.Int64("claims", report.Claims), slog.Int64("units", report.Units),
		slog.Int64("lost_claims", report.LostClaims), slog.String("reason", c.ResidencyReason), slog.Duration("took", time.Since(begun)))
	return report, true, nil
}

// take waits until a token fits into a channel.
func take(ctx context.Context, tokens chan<- struct{}, id string) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return wrapped(context.Cause(ctx), id)
	}
}

// begin is step 1 of a load. isLoader is false if another process loads a lot of the campaign, load or residency changed, or MySQL lacks
// flushes that it had committed.
func (h *Hydrator) begin(ctx context.Context, o *lot, loader string, number int64) (isLoader bool, err error) {
	c := &o.row
	campaignID, shard := models.SplitShardID(c.ID)
	isIntact, args := lacksNone(flushes([]*lot{o}))
	isFree := " AND (loader = '' OR loading_until <= " + h.now() + ")" + isIntact
	take := "loader = ?, loading_until = " + h.loaderTime()
	run := func(query string, args ...any) (changed int64) {
		if err == nil {
			err = sqlstore.Retry(ctx, func() (err error) {
				changed, err = sqlstore.On(h.db.WithContext(ctx)).Exec(query, args...)
				return err
			})
		}
		return changed
	}
	const where = " WHERE id = ? AND epoch = ? AND residency = ? AND load_attempts = ?"
	are := []any{c.ID, c.Epoch, c.Residency, c.LoadAttempts}
	var changed int64
	if shard == 0 {
		changed = run("UPDATE lots SET load_attempts = ?, "+take+where+isFree, slices.Concat([]any{number, loader}, are, args)...)
	} else if run("UPDATE lots SET "+take+" WHERE id = ?"+isFree, slices.Concat([]any{loader, campaignID}, args)...) > 0 {
		changed = run("UPDATE lots SET load_attempts = ?"+where, slices.Concat([]any{number}, are)...)
		if changed == 0 {
			run("UPDATE lots SET loader = '' WHERE id = ? AND loader = ?", campaignID, loader)
		}
	}
	if err == nil && changed == 0 { // perhaps MySQL was rolled back
		err = h.streams.shared(ctx, c.Partition)
	}
	return changed > 0, wrapped(err, c.ID)
}

// lacksNone is a condition by which MySQL has flushes.
func lacksNone(ids []string) (condition string, args []any) {
	if len(ids) == 0 {
		return "", nil
	}
	return " AND (SELECT COUNT(*) FROM stock_flushes WHERE stock_flushes.id IN ?) = ?", []any{ids, len(ids)}
}

// renew renews the time of a loader until the function that it returns is called. The context ends when another may load the campaign.
func (h *Hydrator) renew(ctx context.Context, campaignID, loader string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for sleep.For(ctx, renewEvery) == nil {
			changed, err := sqlstore.On(h.db.WithContext(ctx)).
				Exec("UPDATE lots SET loading_until = "+h.loaderTime()+" WHERE id = ? AND loader = ?", campaignID, loader)
			if err == nil && changed == 0 {
				cancel(fmt.Errorf("%w: %s: another process loads it", lua.ErrUnavailable, campaignID))
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		renewing.Wait()
	}
}

// put takes steps 2 and 3 of a load.
func (h *Hydrator) put(ctx context.Context, o *lot, report *RebuildReport, force bool) (*books, error) {
	c := &o.row.Campaign
	held := *c
	held.Epoch = report.Epoch
	held.Version = 0
	held.Status = models.StatusLoading
	staging, err := h.scripts.NewRebuild(ctx, &held, c.Epoch, c.Residency == models.ResidencyLost)
	if err != nil {
		return nil, wrapped(err, c.ID)
	}
	loaded, err := h.stage(ctx, o, staging, force)
	if err == nil && models.IsShardID(c.ID) {
		err = h.stageMoved(ctx, c, staging, held.Epoch, loaded)
	}
	if err == nil {
		h.steps.At("staged")
		_, err = staging.Finish(ctx)
	}
	if errors.Is(err, lua.ErrBehindTombstone) {
		err = fmt.Errorf("%w: %w", campaigns.ErrMoved, err) // the next observation tells
	}
	if err != nil {
		drop := staging.Drop(context.WithoutCancel(ctx))
		return nil, errors.Join(wrapped(err, c.ID), drop)
	}
	h.steps.At("loaded")
	report.Claims = staging.Claims()
	report.Units = staging.Taken()
	return loaded, nil
}

// stage stages the rows and the parked claims of one snapshot in Redis, and compares them with the counters of the same snapshot.
// Rows that do not add up are ErrLost; with force, the counters that the rows add up to are returned.
func (h *Hydrator) stage(ctx context.Context, o *lot, staging *lua.Rebuild, force bool) (*books, error) {
	c := &o.row
	snap, parked, err := h.snapshot(ctx, o, staging)
	if err != nil {
		return nil, err
	}
	highest := max(staging.Position().Seq, snap.SeenSeq)
	claims := staging.Claims() + snap.ArchivedClaims
	rows := claims - parked.Claims
	units := staging.Taken() - parked.Units
	if force || snap.ArchivedClaims > 0 {
		highest = max(highest, snap.SyncedSeq+parked.Claims) // the last claim may be archived, or given up
	}
	if force {
		if lost := highest - claims; lost > snap.LostClaims {
			return nil, fmt.Errorf("%w: %s: of %d claims, %d have no row and %d were given up", ErrMissing, c.ID, highest, lost, snap.LostClaims)
		}
		staging.SetSeq(highest)
		return &books{
			snap: snap, synced: highest - parked.Claims, lost: highest - claims,
			moreUnits: units - snap.Claimed, moreReleases: staging.Released() - snap.ReleasedClaims,
		}, nil
	}
	// A campaign that was never loaded has no claims of its own.
	if c.Epoch == 0 && highest > 0 || rows+snap.LostClaims != snap.SyncedSeq || highest > snap.SyncedSeq+parked.Claims ||
		units != snap.Claimed || staging.Released() != snap.ReleasedClaims {
		reason := fmt.Sprintf("%d claims of %d units have rows up to %d, %d released, %d are lost, %d parked, %d were seen; "+
			"the books say %d of %d units, %d released",
			rows, units, staging.Position().Seq, staging.Released(), snap.LostClaims, parked.Claims, snap.SeenSeq,
			snap.SyncedSeq, snap.Claimed, snap.ReleasedClaims)
		if _, err := h.markLost(ctx, o, reason); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s: %s", campaigns.ErrLost, c.ID, reason)
	}
	staging.SetSeq(snap.SyncedSeq + parked.Claims)
	return &books{snap: snap, synced: snap.SyncedSeq, lost: snap.LostClaims}, nil
}

// snapshot stages all rows and parked claims of a campaign, and returns its counters and the parked claims, all as of one moment.
func (h *Hydrator) snapshot(ctx context.Context, o *lot, staging *lua.Rebuild) (
	snap models.Campaign, parked *writer.ParkedClaims, err error,
) {
	c := &o.row
	if c.IsBlank && c.Residency != models.ResidencyLost && !models.IsShardID(c.ID) { // no claim of it can be on its way
		return snap, &writer.ParkedClaims{}, nil
	}
	hasParked := false
	err = sqlstore.InSnapshot(ctx, h.db, func(tx *sql.Tx) (err error) {
		err = tx.QueryRowContext(ctx, "SELECT synced_seq, claimed, lost_claims, seen_seq, released_claims,"+
			" archived_claims, archived_units, archived_released,"+
			" EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id) FROM lots WHERE id = ?", c.ID).
			Scan(&snap.SyncedSeq, &snap.Claimed, &snap.LostClaims, &snap.SeenSeq, &snap.ReleasedClaims,
				&snap.ArchivedClaims, &snap.ArchivedUnits, &snap.ArchivedReleased, &hasParked)
		if err != nil {
			return fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
		}
		parked = &writer.ParkedClaims{}
		if hasParked {
			parked, err = writer.ReadParked(ctx, tx, c.ID)
		}
		if err != nil {
			return err
		}
		staging.AddArchived(snap.ArchivedUnits, snap.ArchivedReleased)
		return h.stageRows(ctx, tx, c.ID, staging, parked.BySeq())
	})
	return snap, parked, err
}

// stageRows stages all claims as they come: MySQL is read no faster than Redis is written to.
func (h *Hydrator) stageRows(ctx context.Context, tx *sql.Tx, id string, staging *lua.Rebuild, parked []*writer.ParkedClaim) error {
	n := 0
	err := EachClaim(ctx, tx, h.db.Name(), id, parked, func(p *lua.ClaimRecord) error {
		n++
		if n%rebuildPage == 0 {
			h.steps.At("page")
		}
		return staging.Add(ctx, p)
	})
	if err == nil {
		h.steps.At("page")
	}
	return err
}

// confirm is step 4 of a load. done is false when claims got rows, were given up, or were reported by who saw them, or the definition or
// the claim stream changed, since the snapshot. Releases since then are no hindrance: the relay holds them back until the load is
// confirmed, and then gives them back in Redis.
func (h *Hydrator) confirm(ctx context.Context, o *lot, b *books, loader string, epoch int64) (done bool, err error) {
	c := &o.row
	if models.IsShardID(c.ID) {
		loader = "" // it is in the row of the campaign
	}
	confirm := func(tx *gorm.DB) (changed int64, err error) {
		return sqlstore.On(tx).Exec(
			"UPDATE lots SET claimed = claimed + ?, released_claims = released_claims + ?, synced_seq = ?, lost_claims = ?,"+
				" epoch = ?, residency = ?, residency_reason = '', residency_at = ?, stream_birth = ?, seen_seq = 0, fence_tip = '', loader = ''"+
				" WHERE id = ? AND epoch = ? AND residency = ? AND load_attempts = ? AND loader = ? AND synced_seq = ? AND lost_claims = ?"+
				" AND archived_claims = ? AND seen_seq = ? AND version = ?"+
				" AND (SELECT birth FROM streams WHERE streams.`partition` = lots.`partition`) = ?",
			b.moreUnits, b.moreReleases, b.synced, b.lost,
			epoch, models.ResidencyResident, sqlstore.Now(), o.Generation,
			c.ID, c.Epoch, c.Residency, epoch, loader, b.snap.SyncedSeq, b.snap.LostClaims, b.snap.ArchivedClaims,
			b.snap.SeenSeq, c.Version, o.Generation)
	}
	var changed int64
	err = sqlstore.Retry(ctx, func() (err error) {
		if b.moved == nil {
			changed, err = confirm(h.db.WithContext(ctx))
			return err
		}
		err = h.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
			changed, err = confirm(tx)
			if err != nil || changed == 0 {
				return err
			}
			return h.confirmMoved(ctx, tx, &c.Campaign, b.moved)
		})
		if errors.Is(err, errMovedOn) {
			changed = 0
			err = nil
		}
		return err
	})
	if err != nil || changed == 0 {
		return false, wrapped(err, c.ID)
	}
	if campaignID, shard := models.SplitShardID(c.ID); shard > 0 && (b.moreUnits != 0 || b.moreReleases != 0 || b.synced != b.snap.SyncedSeq) {
		if err := campaigns.SumShards(ctx, h.db, campaignID); err != nil {
			return false, err
		}
	}
	c.Epoch = epoch
	h.steps.At("confirmed")
	return true, nil
}
