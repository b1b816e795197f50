package residency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
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
type books struct{ snap models.Campaign }

// errContradicts says that the rows of a lot do not add up to its counters.
var errContradicts = fmt.Errorf("%w: its rows and its counters in mysql contradict each other", campaigns.ErrLost)

// loadOne is load for one lot, when it is its turn.
func (h *Hydrator) loadOne(ctx context.Context, step recovery.Step, o *lot) (report *LoadReport, err error) {
	if err := h.awaitMoves(ctx, o, step); err != nil {
		return nil, err
	}
	if err := take(ctx, h.loads, o.row.ID); err != nil {
		return nil, err
	}
	defer func() { <-h.loads }()
	_, report, err = h.load(ctx, step, o)
	return report, err
}

// awaitMoves waits until MySQL has applied the streams of all shards of a campaign before one of them is loaded again: its units are what
// its moves say, and a credit proves the debit that the other shard may have lost.
func (h *Hydrator) awaitMoves(ctx context.Context, o *lot, step recovery.Step) error {
	if !models.IsShardID(o.row.ID) || step.Epoch == firstNumber {
		return nil
	}
	campaignID, _ := models.SplitShardID(o.row.ID)
	rows, err := campaigns.ReadLots(h.db.WithContext(ctx), campaignID)
	if err != nil {
		return wrapped(err, o.row.ID)
	}
	var partitions []int
	for i := range rows {
		partitions = append(partitions, rows[i].Partition)
	}
	slices.Sort(partitions)
	ctx, cancel := context.WithTimeout(ctx, proofWait)
	defer cancel()
	err = writer.NewAppliedStreams(h.db, h.scripts).AwaitPartitions(ctx, slices.Compact(partitions))
	if err != nil {
		err = fmt.Errorf("%w: units of its other shards are on their way: %w", lua.ErrUnavailable, err)
	}
	return wrapped(err, o.row.ID)
}

// load takes the steps of a load, or confirms a copy, of one lot, or of several initial ones together. A lost campaign is fenced: what Redis
// holds of it is overwritten. opened are those that take claims then; others changed, or another process loads them. report is nil if none
// was confirmed. Errors: errContradicts.
func (h *Hydrator) load(ctx context.Context, step recovery.Step, lots ...*lot) (opened []*lot, report *LoadReport, err error) {
	c := &lots[0].row
	begun := time.Now()
	loader := rand.Text()
	lots, err = h.begin(ctx, lots, loader, step.Epoch)
	if err != nil || len(lots) == 0 {
		return nil, nil, err
	}
	loading := idsOf(lots)
	ctx, stopRenewing := h.renew(ctx, loading, loader)
	var confirmed []*lot
	defer func() {
		stopRenewing()
		if len(confirmed) < len(loading) {
			_ = sqlstore.On(h.db.WithContext(context.WithoutCancel(ctx))). // else its time runs out
											Run("UPDATE lots SET loader = '' WHERE id IN ? AND loader = ?", loading, loader)
		}
	}()
	h.steps.At("numbered")
	made := &LoadReport{Epoch: step.Epoch, Claims: c.SyncedSeq - c.LostClaims, Units: c.Claimed, LostClaims: c.LostClaims}
	loaded := &books{snap: c.Campaign} // of a copy, and of an initial lot
	switch {
	case step.Action == recovery.Confirm:
	case lots[0].isInitial(step):
		lots, err = h.putInitial(ctx, lots)
	default:
		loaded, err = h.put(ctx, lots[0], made)
	}
	if err == nil {
		confirmed, err = h.confirm(ctx, lots, loaded, loader, step.Epoch)
	}
	if err != nil || len(confirmed) == 0 {
		return nil, nil, err
	}
	opened, err = h.open(ctx, confirmed)
	for _, o := range opened {
		h.seconds.Observe(time.Since(begun).Seconds())
		h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", o.row.ID),
			slog.Int64("epoch", made.Epoch), slog.Int64("claims", made.Claims), slog.Int64("units", made.Units),
			slog.Int64("lost_claims", made.LostClaims), slog.String("reason", o.row.ResidencyReason), slog.Duration("took", time.Since(begun)))
	}
	return opened, made, err
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

// begin is step 1 of a load, and returns the lots that this loader has to itself: none if another process loads a lot of the campaign, load
// or residency changed.
func (h *Hydrator) begin(ctx context.Context, lots []*lot, loader string, number int64) (begun []*lot, err error) {
	c := &lots[0].row
	isFree := " AND (loader = '' OR loading_until <= " + h.now() + ")"
	var changed int64
	err = sqlstore.Retry(ctx, func() (err error) {
		changed, err = sqlstore.On(h.db.WithContext(ctx)).Exec("UPDATE lots SET load_attempts = ?, loader = ?, loading_until = "+h.loaderTime()+
			" WHERE id IN ? AND epoch = ? AND residency = ? AND load_attempts = ?"+isFree,
			number, loader, idsOf(lots), c.Epoch, c.Residency, c.LoadAttempts)
		return err
	})
	switch {
	case err != nil:
	case changed == int64(len(lots)):
		return lots, nil
	case changed > 0:
		lots, err = h.those(ctx, lots, "loader = ?", loader)
		return lots, err
	default: // perhaps MySQL was rolled back
		err = h.streams.shared(ctx, c.Partition)
	}
	return nil, wrapped(err, c.ID)
}

// those are the lots for which a condition is true in MySQL.
func (h *Hydrator) those(ctx context.Context, lots []*lot, condition string, args ...any) ([]*lot, error) {
	var ids []string
	err := sqlstore.On(h.db.WithContext(ctx)).Scan(&ids, "SELECT id FROM lots WHERE id IN ? AND "+condition,
		slices.Concat([]any{idsOf(lots)}, args)...)
	return slices.DeleteFunc(lots, func(o *lot) bool { return !slices.Contains(ids, o.row.ID) }), err
}

// renew renews the time of a loader until the function that it returns is called. The context ends when another may load the campaign.
func (h *Hydrator) renew(ctx context.Context, ids []string, loader string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for sleep.For(ctx, renewEvery) == nil {
			changed, err := sqlstore.On(h.db.WithContext(ctx)).
				Exec("UPDATE lots SET loading_until = "+h.loaderTime()+" WHERE id IN ? AND loader = ?", ids, loader)
			if err == nil && changed == 0 {
				cancel(fmt.Errorf("%w: %s: another process loads it", lua.ErrUnavailable, ids[0]))
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		renewing.Wait()
	}
}

// putInitial takes steps 2 and 3 of a load of initial lots, and returns those that Redis holds then. An error is that of the last lot.
func (h *Hydrator) putInitial(ctx context.Context, lots []*lot) (put []*lot, err error) {
	held := campaignsOf(lots)
	for i := range held {
		held[i].Epoch = firstNumber
		held[i].Version = 0
		held[i].Status = models.StatusLoading
	}
	loaded, errs := h.scripts.LoadAll(ctx, held)
	for i, o := range lots {
		switch {
		case errs[i] != nil:
			err = wrapped(errs[i], o.row.ID)
		case loaded[i]:
			put = append(put, o)
		}
	}
	h.steps.At("loaded")
	if len(put) > 0 { // the others are loaded by themselves
		err = nil
	}
	return put, err
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
	snap.Total = c.Total
	if c.IsBlank && c.Residency != models.ResidencyLost && !models.IsShardID(c.ID) { // no claim of it can be on its way
		return snap, &writer.ParkedClaims{}, nil
	}
	hasParked := false
	err = sqlstore.InSnapshot(ctx, h.db, func(tx *sqlstore.Tx) (err error) {
		err = tx.QueryRowContext(ctx, "SELECT total, synced_seq, claimed, lost_claims, seen_seq, released_claims,"+
			" archived_claims, archived_units, archived_released,"+
			" EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id) FROM lots WHERE id = ?", c.ID).
			Scan(&snap.Total, &snap.SyncedSeq, &snap.Claimed, &snap.LostClaims, &snap.SeenSeq, &snap.ReleasedClaims,
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
		if models.IsShardID(c.ID) {
			if err := stageUnits(ctx, tx, c.ID, staging, snap.Total); err != nil {
				return err
			}
		}
		return h.stageRows(ctx, tx, c.ID, staging, parked.BySeq())
	})
	return snap, parked, err
}

// stageUnits stages the units of a shard, and those that it exchanged with others.
func stageUnits(ctx context.Context, tx *sqlstore.Tx, id string, staging *lua.Rebuild, total int64) error {
	campaignID, shard := models.SplitShardID(id)
	var moved lua.Shares
	err := tx.QueryRowContext(ctx, "SELECT COALESCE(SUM(CASE WHEN from_shard = ? THEN units ELSE 0 END), 0),"+
		" COALESCE(SUM(CASE WHEN to_shard = ? AND credited_at IS NOT NULL THEN units ELSE 0 END), 0)"+
		" FROM stock_moves WHERE campaign_id = ? AND from_shard > 0 AND to_shard > 0", shard, shard, campaignID).Scan(&moved.Out, &moved.In)
	var waiting int64 // that the total lacks yet, see writer
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(SUM(moved), 0) FROM stock_flushes WHERE waiting = 1 AND campaign_id = ? AND shard = ?",
			campaignID, shard).Scan(&waiting)
	}
	if err != nil {
		return fmt.Errorf("residency: moves of %s: %w", id, err)
	}
	staging.SetUnits(total+waiting, moved)
	return nil
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

// confirm is step 4 of a load, and returns the lots that are confirmed: not those of which claims got rows, were given up, or were reported
// by who saw them, or whose claim stream changed, since the snapshot. Releases since then are no hindrance: the relay holds them back until
// the load is confirmed, and then gives them back in Redis. Nor is a change of the definition: whoever changes it often would keep a large
// campaign from being loaded.
func (h *Hydrator) confirm(ctx context.Context, lots []*lot, b *books, loader string, epoch int64) (confirmed []*lot, err error) {
	for some := range groups(lots, func(o *lot) [2]int64 { return [2]int64{int64(o.row.Partition), o.row.Version} }) {
		c := &some[0].row
		version := c.Version
		var changed int64
		once := func() (err error) {
			changed, err = sqlstore.On(h.db.WithContext(ctx)).Exec(
				"UPDATE lots SET epoch = ?, residency = ?, residency_reason = '', residency_at = ?, stream_birth = ?, seen_seq = 0,"+
					" fence_tip = '', loader = ''"+
					" WHERE id IN ? AND epoch = ? AND residency = ? AND load_attempts = ? AND loader = ? AND synced_seq = ? AND lost_claims = ?"+
					" AND archived_claims = ? AND seen_seq = ? AND ? IN ((SELECT version FROM definitions d WHERE d.campaign_id = lots.campaign_id), 0)"+
					" AND (SELECT birth FROM streams WHERE streams.partition_no = lots.partition_no) = ?",
				epoch, models.ResidencyResident, sqlstore.Now(), some[0].Generation,
				idsOf(some), c.Epoch, c.Residency, epoch, loader, b.snap.SyncedSeq, b.snap.LostClaims, b.snap.ArchivedClaims,
				b.snap.SeenSeq, version, some[0].Generation)
			return err
		}
		err = sqlstore.Retry(ctx, once)
		if err == nil && changed == 0 && len(lots) == 1 { // others of a batch are loaded again, by themselves
			version = 0 // any
			err = sqlstore.Retry(ctx, once)
			some[0].isChanged = true
		}
		if err == nil && changed > 0 && changed < int64(len(some)) {
			some, err = h.those(ctx, some, "epoch = ? AND residency = ? AND loader = ''", epoch, models.ResidencyResident)
		}
		if err != nil {
			return nil, wrapped(err, c.ID)
		}
		if changed > 0 {
			confirmed = append(confirmed, some...)
		}
	}
	for _, o := range confirmed {
		o.row.Epoch = epoch
	}
	if len(confirmed) > 0 {
		h.steps.At("confirmed")
	}
	return confirmed, nil
}

// open is step 5 of a load, and returns the lots that take claims then. Their definition is the one that was observed, if confirm found its
// version. An error is that of the last lot.
func (h *Hydrator) open(ctx context.Context, lots []*lot) (opened []*lot, err error) {
	c := &lots[0].row.Campaign
	if c.Kind == models.KindPacket || lots[0].isChanged {
		return lots, h.applier.Apply(ctx, c.ID)
	}
	for i, failed := range h.scripts.AdjustAll(ctx, campaignsOf(lots)) {
		if failed == nil {
			opened = append(opened, lots[i])
		} else {
			err = wrapped(failed, lots[i].row.ID)
		}
	}
	h.steps.At("adjusted")
	for some := range groups(opened, func(o *lot) [2]int64 { return [2]int64{o.row.Version, o.row.AppliedVersion} }) {
		if c := &some[0].row; c.AppliedVersion != c.Version {
			err = errors.Join(err, campaigns.RecordApplied(ctx, h.db, idsOf(some), c.Version))
		}
	}
	return opened, err
}

// groups yields lots by a key.
func groups[K comparable](lots []*lot, key func(*lot) K) iter.Seq[[]*lot] {
	by := make(map[K][]*lot)
	for _, o := range lots {
		by[key(o)] = append(by[key(o)], o)
	}
	return maps.Values(by)
}

func idsOf(lots []*lot) []string {
	ids := make([]string, len(lots))
	for i, o := range lots {
		ids[i] = o.row.ID
	}
	return ids
}

func campaignsOf(lots []*lot) []models.Campaign {
	cs := make([]models.Campaign, len(lots))
	for i, o := range lots {
		cs[i] = o.row.Campaign
	}
	return cs
}
