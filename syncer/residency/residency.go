package residency

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"log/slog"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// load takes the lock of those who load a campaign and runs rounds of it until the campaign is in Redis, or can't be. Those who
// wait for the lock find the winner's work done.
func (h *Hydrator) load(ctx context.Context, id string, round loadRound) (RebuildReport, error) {
	lock, err := h.lock(ctx, id)
	if err != nil {
		return RebuildReport{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		lock.RenewUntil(ctx, func() { cancel(fmt.Errorf("%w: the lock of %s was lost", lua.ErrUnavailable, id)) })
	}()
	defer func() {
		cancel(nil)
		<-kept
		_ = lock.Release(context.WithoutCancel(ctx)) // it runs out by itself
	}()
	for range roundsMost {
		c, err := campaigns.Read(h.Db.WithContext(ctx), id)
		if err == nil {
			err = h.SamePlace(&c)
		}
		if err != nil {
			return RebuildReport{}, err
		}
		report, done, err := round(ctx, &c)
		if err != nil || done {
			return report, err
		}
	}
	return RebuildReport{}, fmt.Errorf("%w: %s: its books do not come to rest", lua.ErrUnavailable, id)
}

// loadRound takes a campaign one step nearer to Redis. done says that nothing is left to do.
type loadRound func(ctx context.Context, c *models.Campaign) (report RebuildReport, done bool, err error)

// lock waits for the lock of those who load a campaign.
func (h *Hydrator) lock(ctx context.Context, id string) (*lua.Lock, error) {
	for {
		lock, err := h.Scripts.LockCampaign(ctx, id, h.cfg.LockFor)
		if !errors.Is(err, lua.ErrLocked) {
			if err != nil {
				return nil, fmt.Errorf("syncer: hydrate %s: %w", id, err)
			}
			return lock, nil
		}
		if err := sleep.For(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("syncer: hydrate %s: %w", id, err)
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
		return h.rebuild(ctx, c, rebuildHow{replace: true, reason: c.ResidencyReason})
	}
	return h.loadAbsent(ctx, c)
}

// examine looks at a campaign that is resident by its books, and writes down what became of it otherwise.
func (h *Hydrator) examine(ctx context.Context, c *models.Campaign) (present bool, err error) {
	wrong, err := h.Wrong(ctx, c)
	if err != nil || wrong == "" {
		return wrong == "" && err == nil, err
	}
	mark, err := h.Scripts.EvictedAt(ctx, c.ID)
	if err != nil && !errors.Is(err, lua.ErrDamaged) {
		return false, fmt.Errorf("syncer: campaign %s: %w", c.ID, err)
	}
	inFull := mark.Epoch > 0 && mark == (lua.Position{Epoch: c.Epoch, Seq: c.SyncedSeq})
	if _, err := h.Scripts.State(ctx, c.ID); errors.Is(err, lua.ErrAbsent) && inFull {
		return false, h.completeEviction(ctx, c.ID, mark) // whoever evicted it died before MySQL heard of it
	}
	return false, h.lose(ctx, c, wrong)
}

// loadAbsent brings a campaign into Redis that is not there by its books, and of which nothing can be in flight.
func (h *Hydrator) loadAbsent(ctx context.Context, c *models.Campaign) (RebuildReport, bool, error) {
	state, err := h.Scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return h.rebuild(ctx, c, rebuildHow{})
	case err != nil:
		return RebuildReport{}, false, fmt.Errorf("syncer: hydrate %s: %w", c.ID, err)
	case state.Status != models.StatusLoading:
		return RebuildReport{}, false, h.lose(ctx, c, fmt.Sprintf("redis holds load %d, which mysql does not know of", state.Epoch))
	case state.Epoch <= c.Epoch || state.Epoch > c.LoadAttempts || state.Seq != c.SyncedSeq || state.Taken != c.Claimed ||
		state.Released != c.ReleasedClaims:
		return h.rebuild(ctx, c, rebuildHow{}) // by one who was late
	}
	return h.confirmLoading(ctx, c, &state)
}

// confirmLoading goes on for a loader that died after it had loaded everything.
func (h *Hydrator) confirmLoading(ctx context.Context, c *models.Campaign, state *lua.State) (RebuildReport, bool, error) {
	stream, _, err := h.generations.intact(ctx, c.Partition)
	if err != nil {
		return RebuildReport{}, false, err
	}
	report := RebuildReport{Epoch: state.Epoch, Claims: state.Seq - c.LostClaims, Units: state.Taken}
	now := &books{synced: c.SyncedSeq, claimed: c.Claimed, lost: c.LostClaims, released: c.ReleasedClaims}
	done, err := h.confirm(ctx, c, now, state.Epoch, stream.Generation)
	return report, done, err
}

// lose writes down that Redis lost a campaign: first Redis takes no more claims, then MySQL says so. Books that changed
// meanwhile stay as they are.
func (h *Hydrator) lose(ctx context.Context, c *models.Campaign, reason string) error {
	if err := h.fence(ctx, c); err != nil {
		return err
	}
	h.step("fenced")
	if c.Residency == models.ResidencyLost {
		return nil
	}
	put := h.Db.WithContext(ctx).Exec("UPDATE campaigns SET residency = ?, residency_reason = ?, residency_at = ?"+
		" WHERE id = ? AND epoch = ? AND residency = ?", models.ResidencyLost, sqlstore.Cut(reason, models.ReasonLength), sqlstore.Now(), c.ID, c.Epoch, c.Residency)
	if put.Error != nil {
		return fmt.Errorf("syncer: campaign %s: %w", c.ID, put.Error)
	}
	if put.RowsAffected > 0 {
		h.cfg.Logger.LogAttrs(ctx, slog.LevelError, "campaign lost: it takes no claims before mysql proves that it holds all of it",
			slog.String("campaign_id", c.ID), slog.String("reason", reason), slog.Int64("epoch", c.Epoch), slog.Int64("synced_seq", c.SyncedSeq))
	}
	h.step("lost")
	return nil
}

// fence has whatever Redis holds of a campaign take no claims. What is damaged beyond that takes none by itself.
func (h *Hydrator) fence(ctx context.Context, c *models.Campaign) error {
	state, err := h.Scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return nil
	case err != nil && !errors.Is(err, lua.ErrDamaged):
		return fmt.Errorf("syncer: fence %s: %w", c.ID, err)
	case err != nil:
		state.Epoch = c.Epoch
	}
	err = h.Scripts.Fence(ctx, c.ID, state.Epoch)
	if err != nil && !errors.Is(err, lua.ErrDamaged) {
		return fmt.Errorf("syncer: fence %s: %w", c.ID, err)
	}
	return nil
}

// lostUnless is ErrLost for a reason, unless err says that something else is the matter.
func lostUnless(err error, id, reason string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s: %s", campaigns.ErrLost, id, reason)
}

// completeEviction tells MySQL that a campaign left Redis in full, and takes the mark of it away.
func (h *Hydrator) completeEviction(ctx context.Context, id string, mark lua.Position) error {
	if err := recordEviction(ctx, h.Db, id, mark); err != nil {
		return err
	}
	if err := h.Scripts.Forget(ctx, id, mark); err != nil {
		return fmt.Errorf("syncer: evict %s: %w", id, err)
	}
	return nil
}

// Examine looks at a campaign that is in Redis by its books, and writes down what became of it: that it was evicted, or is
// lost. It loads nothing.
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
