package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// load takes the lock of a campaign's loaders and runs rounds until the campaign is in Redis, or cannot be. A loader that waited
// for the lock finds the work of the one before it done.
func (h *Hydrator) load(ctx context.Context, id string, round loadRound) (report RebuildReport, err error) {
	err = h.locked(ctx, id, func(ctx context.Context) error {
		for range roundsMost {
			c, err := h.applier.Read(ctx, id)
			if err != nil {
				return err
			}
			var done bool
			report, done, err = round(ctx, &c)
			if err != nil || done {
				return err
			}
		}
		return fmt.Errorf("%w: %s: its counters in mysql changed during each of %d loads: try again", lua.ErrUnavailable, id, roundsMost)
	})
	return report, err
}

// locked waits for the lock of a campaign's loaders, and has do run under it. The context of do ends when another may have the lock.
func (h *Hydrator) locked(ctx context.Context, id string, do func(ctx context.Context) error) error {
	lock, err := h.lock(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		if err := lock.RenewUntil(ctx); err != nil {
			cancel(fmt.Errorf("%w: %w", lua.ErrUnavailable, err))
		}
	}()
	defer func() {
		cancel(nil)
		<-renewed
		_ = lock.Release(context.WithoutCancel(ctx)) // it runs out by itself
	}()
	return do(ctx)
}

// loadRound takes a campaign one step towards Redis. done says that nothing is left to do.
type loadRound func(ctx context.Context, c *models.Campaign) (report RebuildReport, done bool, err error)

// lock waits for the lock of a campaign's loaders.
func (h *Hydrator) lock(ctx context.Context, id string) (*lua.Lock, error) {
	for {
		lock, err := h.scripts.LockCampaign(ctx, id, loadLockFor)
		if !errors.Is(err, lua.ErrLocked) {
			if err != nil {
				return nil, fmt.Errorf("residency: hydrate %s: %w", id, err)
			}
			return lock, nil
		}
		if err := sleep.For(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("residency: hydrate %s: %w", id, err)
		}
	}
}

// hydrateRound is the round of Hydrate.
func (h *Hydrator) hydrateRound(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
	switch {
	case campaigns.IsResident(c):
		present, err := h.examine(ctx, c)
		return RebuildReport{}, present, err
	case c.Residency == models.ResidencyLost:
		if err := h.prove(ctx, c); err != nil {
			return RebuildReport{}, false, err
		}
		return h.rebuild(ctx, c, false)
	}
	return h.loadAbsent(ctx, c)
}

// examine compares a campaign that is resident by its books with Redis, and records the eviction or the loss that it finds.
func (h *Hydrator) examine(ctx context.Context, c *models.Campaign) (present bool, err error) {
	wrong, err := h.Wrong(ctx, c)
	if err != nil || wrong == "" {
		return wrong == "" && err == nil, err
	}
	evicted, err := h.scripts.EvictedAt(ctx, c.ID)
	if err != nil && !errors.Is(err, lua.ErrDamaged) {
		return false, fmt.Errorf("residency: campaign %s: %w", c.ID, err)
	}
	known := lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq, TSeq: c.TSeq}
	_, err = h.scripts.State(ctx, c.ID)
	switch isAbsent := errors.Is(err, lua.ErrAbsent) && evicted.Epoch > 0; {
	case isAbsent && known.Before(evicted): // MySQL was restored to a time before the eviction
		return false, h.loseBehindTombstone(ctx, c)
	case isAbsent && known == evicted: // the evictor died before it recorded the eviction in MySQL
		return false, recordEviction(ctx, h.db, c.ID, evicted)
	}
	return false, h.lose(ctx, c, wrong)
}

// loadAbsent loads a campaign that is not in Redis by its books, so that no claim of it can be on its way.
func (h *Hydrator) loadAbsent(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
	state, err := h.scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return h.rebuild(ctx, c, false)
	case err != nil:
		return RebuildReport{}, false, fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	case state.Status != models.StatusLoading:
		return RebuildReport{}, false, h.lose(ctx, c, fmt.Sprintf("redis holds load %d, which mysql does not know of", state.Epoch))
	case models.IsShardID(c.ID), state.Epoch <= c.Epoch || state.Epoch > c.LoadAttempts || state.Seq != c.SyncedSeq || state.Seq < c.SeenSeq ||
		state.Taken != c.Claimed || state.Released != c.ReleasedClaims:
		return h.rebuild(ctx, c, false) // from a loader whose load was not confirmed
	case c.ArchivedClaims > 0: // perhaps since that load: Redis would hold records of claims that have no row
		return h.rebuild(ctx, c, false)
	}
	return h.confirmLoading(ctx, c, &state)
}

// confirmLoading confirms the load of a loader that died after it had loaded everything.
func (h *Hydrator) confirmLoading(ctx context.Context, c *models.Campaign, state *lua.State) (RebuildReport, bool, error) {
	seen, err := h.streams.intact(ctx, c.Partition)
	if err != nil {
		return RebuildReport{}, false, err
	}
	report := RebuildReport{Epoch: state.Epoch, Claims: state.Seq - c.LostClaims, Units: state.Taken}
	loaded := &books{snap: *c, synced: c.SyncedSeq, lost: c.LostClaims}
	done, err := h.confirm(ctx, c, loaded, state.Epoch, seen.stream.Generation)
	return report, done, err
}

// lose records that Redis lost a campaign: first Redis takes no more claims, then MySQL says so. A campaign whose load or
// residency changed in the meantime stays as it is.
func (h *Hydrator) lose(ctx context.Context, c *models.Campaign, reason string) error {
	if _, err := h.fence(ctx, c); err != nil {
		return err
	}
	h.steps.At("fenced")
	if c.Residency == models.ResidencyLost {
		return nil
	}
	changed, err := sqlstore.On(h.db.WithContext(ctx)).Exec("UPDATE lots SET residency = ?, residency_reason = ?, residency_at = ?"+
		" WHERE id = ? AND epoch = ? AND residency = ?",
		models.ResidencyLost, sqlstore.Cut(reason, models.ReasonLength), sqlstore.Now(), c.ID, c.Epoch, c.Residency)
	if err != nil {
		return fmt.Errorf("residency: campaign %s: %w", c.ID, err)
	}
	if changed > 0 {
		h.log.LogAttrs(ctx, slog.LevelError, "campaign lost from redis: it takes no claims until mysql is proven to have all of them, or"+
			" `dibs reconcile --repair` rebuilds it",
			slog.String("campaign_id", c.ID), slog.String("reason", reason), slog.Int64("epoch", c.Epoch), slog.Int64("synced_seq", c.SyncedSeq))
	}
	h.steps.At("lost")
	return nil
}

// fence stops claims of whatever Redis holds of a campaign, and reports whether it took claims until now. A state too damaged to be
// fenced takes none anyway.
func (h *Hydrator) fence(ctx context.Context, c *models.Campaign) (stopped bool, err error) {
	state, err := h.scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return false, nil
	case err != nil && !errors.Is(err, lua.ErrDamaged):
		return false, fmt.Errorf("residency: fence %s: %w", c.ID, err)
	case err != nil:
		state.Epoch = c.Epoch
	default:
		stopped = state.Status != models.StatusFenced
	}
	err = h.scripts.Fence(ctx, c.ID, state.Epoch)
	if err != nil && !errors.Is(err, lua.ErrDamaged) {
		return false, fmt.Errorf("residency: fence %s: %w", c.ID, err)
	}
	return stopped, nil
}

// lostUnless returns err, or ErrLost with a reason if err is nil.
func lostUnless(err error, id, reason string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s: %s", campaigns.ErrLost, id, reason)
}

// Examine compares a campaign that is in Redis by its books with Redis, and records the eviction or the loss that it finds. It
// loads nothing. Errors: models.ErrNotFound, campaigns.ErrPartitions, and those of lua.Scripts.
func (h *Hydrator) Examine(ctx context.Context, campaignID string) error {
	_, err := h.load(ctx, campaignID, func(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
		if !campaigns.IsResident(c) {
			return RebuildReport{}, true, nil
		}
		_, err := h.examine(ctx, c)
		return RebuildReport{}, true, err
	})
	return err
}
