package residency

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
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
func (h *Hydrator) Rebuild(ctx context.Context, campaignID string) (RebuildReport, error) {
	ctx, cancel := context.WithTimeout(ctx, hydrateTimeout)
	defer cancel()
	report, err := h.load(ctx, campaignID, func(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
		if c.Residency != models.ResidencyLost {
			return RebuildReport{}, false, h.lose(ctx, c, "a rebuild was asked for")
		}
		if err := h.drained(ctx, c); err != nil {
			return RebuildReport{}, false, err
		}
		return h.rebuild(ctx, c, true)
	})
	if err != nil {
		return report, err
	}
	return report, h.applier.Apply(ctx, campaignID)
}

// Stop has a campaign take no claims, and waits until each claim that it took has its row or is parked. Rebuild brings it back; so does
// any process that proves that nothing is missing. Errors as Rebuild.
func (h *Hydrator) Stop(ctx context.Context, campaignID string) error {
	_, err := h.load(ctx, campaignID, func(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
		if c.Residency != models.ResidencyLost {
			return RebuildReport{}, false, h.lose(ctx, c, "a repair was asked for")
		}
		return RebuildReport{}, true, h.drained(ctx, c)
	})
	return err
}

// rebuild takes steps 1 to 4 of a load. Of a lost campaign, which is fenced, it overwrites what Redis holds. force takes the rows for the
// truth even if they do not add up to the books or claims are known to be lost, and corrects the books. done is false when the books
// changed in the meantime.
func (h *Hydrator) rebuild(ctx context.Context, c *models.Campaign, force bool) (report RebuildReport, done bool, err error) {
	campaignID, shard := models.SplitShardID(c.ID)
	if shard == 0 {
		return h.rebuildAlone(ctx, c, force)
	}
	// A load of a lot has to know of each that was begun of its peers. One of each process waits for the lock.
	turn, _ := h.lots.LoadOrStore(campaignID, make(chan struct{}, 1))
	if err := take(ctx, turn.(chan struct{}), c.ID); err != nil { //nolint:forcetypeassert // stored here alone
		return report, false, err
	}
	defer func() { <-turn.(chan struct{}) }() //nolint:forcetypeassert // stored here alone
	err = h.locked(ctx, campaignID, func(ctx context.Context) (err error) {
		report, done, err = h.rebuildAlone(ctx, c, force)
		return err
	})
	return report, done, err
}

// take waits until a token fits into a channel.
func take(ctx context.Context, tokens chan<- struct{}, id string) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("residency: rebuild %s: %w", id, context.Cause(ctx))
	}
}

// rebuildAlone is rebuild while no other lot of the campaign is loaded.
func (h *Hydrator) rebuildAlone(ctx context.Context, c *models.Campaign, force bool) (report RebuildReport, done bool, err error) {
	if err := take(ctx, h.loads, c.ID); err != nil {
		return report, false, err
	}
	defer func() { <-h.loads }()
	begun := time.Now()
	epoch, err := h.attempt(ctx, c)
	if err != nil || epoch == 0 {
		return report, false, err
	}
	h.steps.At("numbered")
	seen, err := h.streams.shared(ctx, c.Partition) // before the rows are read: a stream that breaks later is another one
	if err != nil {
		return report, false, err
	}
	held := *c
	held.Epoch = epoch
	held.Version = 0
	held.Status = models.StatusLoading
	staging, err := h.scripts.NewRebuild(ctx, &held, c.Epoch, c.Residency == models.ResidencyLost)
	if err != nil {
		return report, false, fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
	}
	loaded, err := h.stage(ctx, c, staging, force)
	if err == nil && models.IsShardID(c.ID) {
		err = h.stageMoved(ctx, c, staging, epoch, loaded)
	}
	if err == nil {
		h.steps.At("staged")
		_, err = staging.Finish(ctx)
	}
	if errors.Is(err, lua.ErrBehindTombstone) {
		err = cmp.Or(h.loseBehindTombstone(ctx, c), errors.Join(campaigns.ErrLost, err))
	}
	if err != nil {
		drop := staging.Drop(context.WithoutCancel(ctx))
		return report, false, errors.Join(fmt.Errorf("residency: rebuild %s: %w", c.ID, err), drop)
	}
	h.steps.At("loaded")
	done, err = h.confirm(ctx, c, loaded, epoch, seen.stream.Generation)
	if err != nil || !done {
		return report, false, err
	}
	report = RebuildReport{Epoch: epoch, Claims: staging.Claims(), Units: staging.Taken(), LostClaims: loaded.lost}
	h.seconds.Observe(time.Since(begun).Seconds())
	h.log.LogAttrs(ctx, slog.LevelInfo, "campaign loaded into redis", slog.String("campaign_id", c.ID),
		slog.Int64("epoch", epoch), slog.Int64("claims", report.Claims), slog.Int64("units", report.Units),
		slog.Int64("lost_claims", report.LostClaims), slog.String("reason", c.ResidencyReason), slog.Duration("took", time.Since(begun)))
	return report, true, nil
}

// loseBehindTombstone takes a campaign out of use of which MySQL has less than Redis evicted. What was evicted is known to have been
// answered.
func (h *Hydrator) loseBehindTombstone(ctx context.Context, c *models.Campaign) error {
	evicted, err := h.scripts.EvictedAt(ctx, c.ID)
	if err != nil {
		return err
	}
	reason := fmt.Sprintf("%s: redis evicted load %d with %d claims, mysql has load %d with %d", campaigns.MySQLRolledBack,
		evicted.Epoch, evicted.Seq, c.Epoch, c.SyncedSeq)
	if err := h.lose(ctx, c, reason); err != nil {
		return err
	}
	return sqlstore.On(h.db.WithContext(ctx)).Run("UPDATE lots SET seen_seq = ? WHERE id = ? AND epoch = ? AND seen_seq < ?",
		evicted.Seq, c.ID, c.Epoch, evicted.Seq)
}

// attempt hands out the number of a load, or 0 when load or residency have changed since c was read.
func (h *Hydrator) attempt(ctx context.Context, c *models.Campaign) (int64, error) {
	const where = " WHERE id = ? AND epoch = ? AND residency = ?"
	pool := h.db.ConnPool
	var n int64
	err := sqlstore.Retry(ctx, func() (err error) {
		if h.db.Name() == migrations.SQLite {
			n, err = returned(pool.QueryRowContext(ctx, "UPDATE lots SET load_attempts = load_attempts + 1"+where+" RETURNING load_attempts",
				c.ID, c.Epoch, c.Residency))
			return err
		}
		put, err := pool.ExecContext(ctx, "UPDATE lots SET load_attempts = LAST_INSERT_ID(load_attempts + 1)"+where,
			c.ID, c.Epoch, c.Residency)
		if err != nil {
			return err
		}
		n, err = put.LastInsertId() // 0 when no row was meant
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	}
	return n, nil
}

// returned is the number that a statement returned, 0 if it returned none.
func returned(row *sql.Row) (n int64, err error) {
	err = row.Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// stage stages the rows and the parked claims of one snapshot in Redis, and compares them with the counters of the same snapshot.
// Rows that do not add up are ErrLost; with force, the counters that the rows add up to are returned.
func (h *Hydrator) stage(ctx context.Context, c *models.Campaign, staging *lua.Rebuild, force bool) (*books, error) {
	snap, parked, err := h.snapshot(ctx, c, staging)
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
		return nil, lostUnless(h.lose(ctx, c, reason), c.ID, reason)
	}
	staging.SetSeq(snap.SyncedSeq + parked.Claims)
	return &books{snap: snap, synced: snap.SyncedSeq, lost: snap.LostClaims}, nil
}

// snapshot stages all rows and parked claims of a campaign, and returns its counters and the parked claims, all as of one moment.
func (h *Hydrator) snapshot(ctx context.Context, c *models.Campaign, staging *lua.Rebuild) (
	snap models.Campaign, parked *writer.ParkedClaims, err error,
) {
	if c.SyncedSeq == 0 && !models.IsShardID(c.ID) {
		if blank, err := h.isBlank(ctx, c.ID); err != nil || blank {
			return snap, &writer.ParkedClaims{}, err
		}
	}
	err = sqlstore.InSnapshot(ctx, h.db, func(tx *sql.Tx) (err error) {
		err = tx.QueryRowContext(ctx, "SELECT synced_seq, claimed, lost_claims, seen_seq, released_claims,"+
			" archived_claims, archived_units, archived_released FROM lots WHERE id = ?", c.ID).
			Scan(&snap.SyncedSeq, &snap.Claimed, &snap.LostClaims, &snap.SeenSeq, &snap.ReleasedClaims,
				&snap.ArchivedClaims, &snap.ArchivedUnits, &snap.ArchivedReleased)
		if err != nil {
			return fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
		}
		parked, err = writer.ReadParked(ctx, tx, c.ID)
		if err != nil {
			return err
		}
		staging.AddArchived(snap.ArchivedUnits, snap.ArchivedReleased)
		return h.stageRows(ctx, tx, c.ID, staging, parked.BySeq())
	})
	return snap, parked, err
}

// isBlank reports whether a campaign has no claims, has never had any, and has counters that say so. It is one statement, as most loads
// are of such campaigns: they are asked for the first time.
func (h *Hydrator) isBlank(ctx context.Context, id string) (blank bool, err error) {
	err = h.db.ConnPool.QueryRowContext(ctx, "SELECT "+withoutClaims+" FROM lots WHERE id = ?", id).Scan(&blank)
	if err != nil {
		return false, fmt.Errorf("residency: rebuild %s: %w", id, err)
	}
	return blank, nil
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

// confirm is step 4 of a load. done is false when claims got rows, were given up, or were reported by who saw them, since the snapshot.
// Releases since then are no hindrance: the relay holds them back until the load is confirmed, and then gives them back in Redis.
func (h *Hydrator) confirm(ctx context.Context, c *models.Campaign, b *books, epoch int64, generation string) (done bool, err error) {
	confirm := func(tx *gorm.DB) (changed int64, err error) {
		return sqlstore.On(tx).Exec(
			"UPDATE lots SET claimed = claimed + ?, released_claims = released_claims + ?, synced_seq = ?, lost_claims = ?,"+
				" epoch = ?, residency = ?, residency_reason = '', residency_at = ?, stream_birth = ?, seen_seq = 0"+
				" WHERE id = ? AND epoch = ? AND residency = ? AND load_attempts >= ? AND synced_seq = ? AND lost_claims = ?"+
				" AND archived_claims = ? AND seen_seq = ?",
			b.moreUnits, b.moreReleases, b.synced, b.lost,
			epoch, models.ResidencyResident, sqlstore.Now(), generation,
			c.ID, c.Epoch, c.Residency, epoch, b.snap.SyncedSeq, b.snap.LostClaims, b.snap.ArchivedClaims,
			b.snap.SeenSeq)
	}
	var changed int64
	if b.moved == nil {
		changed, err = confirm(h.db.WithContext(ctx))
	} else {
		err = sqlstore.Retry(ctx, func() error {
			err := h.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
				changed, err = confirm(tx)
				if err != nil || changed == 0 {
					return err
				}
				return h.confirmMoved(ctx, tx, c, b.moved)
			})
			if errors.Is(err, errMovedOn) {
				changed = 0
				err = nil
			}
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	}
	if changed == 0 {
		return false, nil
	}
	if campaignID, shard := models.SplitShardID(c.ID); shard > 0 && (b.moreUnits != 0 || b.moreReleases != 0 || b.synced != b.snap.SyncedSeq) {
		if err := campaigns.SumShards(ctx, h.db, campaignID); err != nil {
			return false, err
		}
	}
	h.mu.Lock()
	delete(h.fenced, c.ID)
	h.mu.Unlock()
	h.steps.At("confirmed")
	return true, nil
}
