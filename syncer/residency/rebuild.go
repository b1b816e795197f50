package residency

import (
	"context"
	"crypto/rand"
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

// LoadReport says what a load brought into Redis.
type LoadReport struct {
	Epoch      int64 // the new load
	Claims     int64 // that were loaded: those with rows, and parked ones
	Units      int64 // of live claims
	LostClaims int64 // claims known to be lost, ever: seqs of the campaign that have no row and never will
}

// books are the counters of a load's snapshot.
type books struct {
	snap  models.Campaign
	moved *moved // of a lot of a campaign of several shards
}

// errContradicts says that the rows of a lot do not add up to its counters.
var errContradicts = fmt.Errorf("%w: its rows and its counters in mysql contradict each other", campaigns.ErrLost)

// rebuild takes steps 1 to 4 of a load, or confirms a copy. Of a lost campaign, which is fenced, it overwrites what Redis holds. It returns
// nil when the counters changed, or another process loads the lot. Errors: errContradicts.
func (h *Hydrator) rebuild(ctx context.Context, o *lot, step recovery.Step) (report *LoadReport, err error) {
	c := &o.row
	campaignID, shard := models.SplitShardID(c.ID)
	if shard > 0 { // a load of a lot has to know of each that was started of its peers
		turn, _ := h.lots.LoadOrStore(campaignID, make(chan struct{}, 1))
		if err := take(ctx, turn.(chan struct{}), c.ID); err != nil { //nolint:forcetypeassert // stored here alone
			return nil, err
		}
		defer func() { <-turn.(chan struct{}) }() //nolint:forcetypeassert // stored here alone
	}
	if err := take(ctx, h.loads, c.ID); err != nil {
		return nil, err
	}
	defer func() { <-h.loads }()
	begun := time.Now()
	loader := rand.Text()
	isLoader, err := h.begin(ctx, o, loader, step.Epoch)
	if err != nil || !isLoader {
		return nil, err
	}
	ctx, stopRenewing := h.renew(ctx, campaignID, loader)
	defer func() {
		stopRenewing()
		if report == nil || shard > 0 {
			_ = sqlstore.On(h.db.WithContext(context.WithoutCancel(ctx))). // else its time runs out
											Run("UPDATE lots SET loader = '' WHERE id = ? AND loader = ?", campaignID, loader)
		}
	}()
	h.steps.At("numbered")
	loaded := &books{snap: c.Campaign} // of a copy
	made := &LoadReport{Epoch: step.Epoch, Claims: c.SyncedSeq - c.LostClaims, Units: c.Claimed, LostClaims: c.LostClaims}
	if step.Action == recovery.Load {
		loaded, err = h.put(ctx, o, made)
		if err != nil {
			return nil, err
		}
	}
	isConfirmed, err := h.confirm(ctx, o, loaded, loader, step.Epoch)
	if err != nil || !isConfirmed {
		return nil, err
	}
	h.seconds.Observe(time.Since(begun).Seconds())
	h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", c.ID),
		slog.Int64("epoch", step.Epoch), slog.Int64("claims", made.Claims), slog.Int64("units", made.Units),
		slog.Int64("lost_claims", made.LostClaims), slog.String("reason", c.ResidencyReason), slog.Duration("took", time.Since(begun)))
	return made, nil
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
func (h *Hydrator) put(ctx context.Context, o *lot, report *LoadReport) (*books, error) {
	c := &o.row.Campaign
	held := *c
	held.Epoch = report.Epoch
	held.Version = 0
	held.Status = models.StatusLoading
	staging, err := h.scripts.NewRebuild(ctx, &held, c.Epoch, c.Residency == models.ResidencyLost)
	if err != nil {
		return nil, wrapped(err, c.ID)
	}
	loaded, err := h.stage(ctx, o, staging)
	if err == nil && models.IsShardID(c.ID) {
		err = h.stageMoved(ctx, c, staging, held.Epoch, loaded, o.policy)
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
	report.LostClaims = loaded.snap.LostClaims
	return loaded, nil
}

// stage stages the rows and the parked claims of one snapshot in Redis, and compares them with the counters of the same snapshot.
// The lot is lost if they contradict each other. Errors: errContradicts.
func (h *Hydrator) stage(ctx context.Context, o *lot, staging *lua.Rebuild) (*books, error) {
	c := &o.row
	snap, parked, err := h.snapshot(ctx, o, staging)
	if err != nil {
		return nil, err
	}
	highest := max(staging.Position().Seq, snap.SeenSeq)
	rows := staging.Claims() + snap.ArchivedClaims - parked.Claims
	units := staging.Taken() - parked.Units
	// A campaign that was never loaded has no claims of its own.
	isNew := c.Epoch == 0 && c.Residency != models.ResidencyLost
	if isNew && highest > 0 || rows+snap.LostClaims != snap.SyncedSeq || highest > snap.SyncedSeq+parked.Claims ||
		units != snap.Claimed || staging.Released() != snap.ReleasedClaims {
		reason := fmt.Sprintf("%d claims of %d units have rows up to %d, %d released, %d are lost, %d parked, %d were seen; "+
			"the books say %d of %d units, %d released",
			rows, units, staging.Position().Seq, staging.Released(), snap.LostClaims, parked.Claims, snap.SeenSeq,
			snap.SyncedSeq, snap.Claimed, snap.ReleasedClaims)
		if _, err := h.markLost(ctx, o, reason); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s: %s", errContradicts, c.ID, reason)
	}
	staging.SetSeq(snap.SyncedSeq + parked.Claims)
	return &books{snap: snap}, nil
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
	err = sqlstore.InSnapshot(ctx, h.db, func(tx *sqlstore.Tx) (err error) {
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
func (h *Hydrator) stageRows(ctx context.Context, tx *sqlstore.Tx, id string, staging *lua.Rebuild, parked []*writer.ParkedClaim) error {
	n := 0
	err := EachClaim(ctx, tx, id, parked, func(p *lua.ClaimRecord) error {
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
			"UPDATE lots SET epoch = ?, residency = ?, residency_reason = '', residency_at = ?, stream_birth = ?, seen_seq = 0,"+
				" fence_tip = '', loader = ''"+
				" WHERE id = ? AND epoch = ? AND residency = ? AND load_attempts = ? AND loader = ? AND synced_seq = ? AND lost_claims = ?"+
				" AND archived_claims = ? AND seen_seq = ? AND version = ?"+
				" AND (SELECT birth FROM streams WHERE streams.`partition` = lots.`partition`) = ?",
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
	c.Epoch = epoch
	h.steps.At("confirmed")
	return true, nil
}
