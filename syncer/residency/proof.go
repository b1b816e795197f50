package residency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

var (
	// ErrUnsynced says that the claim stream holds claims that have no rows yet: a rebuild now would lose them.
	ErrUnsynced = errors.New("residency: claims are still on their way into mysql")
	// ErrMissing says that MySQL counts claims, or someone saw them, that have no row: a rebuild would give them up.
	ErrMissing = errors.New("residency: claims that were answered have no row")
)

// prove returns nil if MySQL has every claim of a lost campaign, unless someone deleted rows by hand:
//
//   - the claim stream is the one that the campaign was loaded under and was never rolled back, so it held every claim;
//   - the consumer group has acknowledged everything up to what was its tip after the campaign took no more claims;
//   - no process saw a claim that MySQL lacks, and Redis holds none.
//
// That the rows have no gaps and add up to the books is checked as they are read, see stage.
func (h *Hydrator) prove(ctx context.Context, c *models.Campaign) error {
	stopped, err := h.fence(ctx, c)
	if err != nil {
		return err
	}
	seen, err := h.streams.intact(ctx, c.Partition)
	if err != nil {
		return err
	}
	stream := &seen.stream
	if strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack) || c.StreamGeneration != stream.Generation {
		return fmt.Errorf("%w: %s: %s; only a repair can tell what its claims were", campaigns.ErrLost, c.ID, c.ResidencyReason)
	}
	if err := h.acknowledged(ctx, c, h.tipWhenFenced(c, stream, stopped)); err != nil {
		return fmt.Errorf("%w: %s: %s: %w", campaigns.ErrLost, c.ID, c.ResidencyReason, err)
	}
	h.steps.At("acknowledged")
	again, err := h.streams.intact(ctx, c.Partition)
	if err == nil && again.stream.Generation != stream.Generation {
		err = fmt.Errorf("%w: %s: the claim stream lost entries in the meantime", campaigns.ErrLost, c.ID)
	}
	if err != nil {
		return err
	}
	return h.nothingSeen(ctx, c)
}

// nothingSeen returns nil if no one saw a claim that MySQL lacks, and Redis holds none. A MySQL that was restored lacks what Redis holds.
func (h *Hydrator) nothingSeen(ctx context.Context, c *models.Campaign) error {
	state, err := h.scripts.State(ctx, c.ID)
	if err != nil && !errors.Is(err, lua.ErrAbsent) && !errors.Is(err, lua.ErrDamaged) {
		return fmt.Errorf("residency: campaign %s: %w", c.ID, err)
	}
	fresh, err := campaigns.Read(h.db.WithContext(ctx), c.ID) // c was read before the group was done: its claims have their rows now
	if err != nil {
		return err
	}
	parked, err := h.Parked(ctx, c.ID)
	if err != nil {
		return err
	}
	if seen := max(fresh.SeenSeq, state.Seq); seen > fresh.SyncedSeq+parked.Claims {
		return fmt.Errorf("%w: %s: %d claims were seen, mysql has %d", campaigns.ErrLost, c.ID, seen, fresh.SyncedSeq)
	}
	return nil
}

// fencedAt is the tip of a claim stream at a moment when a campaign took no more claims.
type fencedAt struct {
	epoch      int64 // of the campaign
	generation string
	tip        lua.EntryID
}

// tipWhenFenced is the tip that a proof waits for: the stream's when this process first found the campaign without claims, not
// the newest, which consumers that are steadily behind never reach. stopped says that claims were taken until just now.
func (h *Hydrator) tipWhenFenced(c *models.Campaign, stream *lua.Stream, stopped bool) lua.EntryID {
	now := fencedAt{c.Epoch, stream.Generation, stream.Tip}
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, known := h.fenced[c.ID]; known && !stopped && first.epoch == now.epoch && first.generation == now.generation {
		return first.tip
	}
	h.fenced[c.ID] = now
	return now.tip
}

// Parked reads the parked claims of a campaign.
func (h *Hydrator) Parked(ctx context.Context, id string) (*writer.ParkedClaims, error) {
	return writer.ReadParked(ctx, h.db.ConnPool, id)
}

// drained fences a campaign and waits until each of its claims that the claim stream holds has its row.
func (h *Hydrator) drained(ctx context.Context, c *models.Campaign) error {
	if _, err := h.fence(ctx, c); err != nil {
		return err
	}
	stream, err := h.scripts.Stream(ctx, c.Partition)
	if err != nil {
		return fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
	}
	err = h.acknowledged(ctx, c, stream.Tip)
	if errors.Is(err, ErrUnsynced) {
		return fmt.Errorf("%w; %s takes no claims now: when the consumers have caught up it comes back by itself if its rows"+
			" add up; else repair it again", err, c.ID)
	}
	return err
}

// acknowledged waits until the consumer group has acknowledged everything up to tip. Errors: ErrUnsynced.
func (h *Hydrator) acknowledged(ctx context.Context, c *models.Campaign, tip lua.EntryID) error {
	for until := time.Now().Add(proofWait); ; {
		unread, err := h.scripts.Unread(ctx, c.Partition, models.GroupSyncer)
		switch {
		case err != nil:
			return fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
		case unread.Upto(tip):
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%w: group %s is at %s with %d pending, the stream at %s", ErrUnsynced, models.GroupSyncer,
				unread.Delivered, unread.Pending, tip)
		}
		if err := sleep.For(ctx, proofPoll); err != nil {
			return fmt.Errorf("residency: rebuild %s: %w", c.ID, err)
		}
	}
}
