package residency

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"time"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// ErrUnsynced says that the claim stream holds claims that have no rows yet: a rebuild now would forget them.
var ErrUnsynced = errors.New("syncer: claims are still on their way into mysql")

// prove returns nil if nothing of a lost campaign can be missing from MySQL but by the hand of somebody who deletes rows:
//
//   - the claim stream is the one that the campaign was loaded under and never went back, so it held every claim there was;
//   - the consumer group has acknowledged everything in it, up to what was its tip after the campaign took no more claims;
//   - nobody saw a claim that MySQL lacks.
//
// That the rows are without gaps and add up to the books is looked at as they are read, see stage.
func (h *Hydrator) prove(ctx context.Context, c *models.Campaign) error {
	if err := h.fence(ctx, c); err != nil {
		return err
	}
	stream, _, err := h.generations.intact(ctx, c.Partition)
	switch {
	case err != nil:
		return err
	case c.StreamGeneration != stream.Generation:
		return fmt.Errorf("%w: %s: %s; only a repair can tell what its claims were", campaigns.ErrLost, c.ID, c.ResidencyReason)
	}
	if err := h.acknowledged(ctx, c, stream.Tip); err != nil {
		return fmt.Errorf("%w: %s: %s: %w", campaigns.ErrLost, c.ID, c.ResidencyReason, err)
	}
	again, _, err := h.generations.intact(ctx, c.Partition)
	if err == nil && again.Generation != stream.Generation {
		err = fmt.Errorf("%w: %s: the claim stream was lost meanwhile", campaigns.ErrLost, c.ID)
	}
	if err != nil {
		return err
	}
	if c.SeenSeq > 0 { // as of before the group was done: what it brought has its rows now
		fresh, err := campaigns.Read(h.Db.WithContext(ctx), c.ID)
		if err != nil {
			return err
		}
		parked, err := h.Parked(ctx, c.ID)
		if err != nil {
			return err
		}
		if fresh.SeenSeq > fresh.SyncedSeq+parked.Claims {
			return fmt.Errorf("%w: %s: %d claims were seen, mysql has %d", campaigns.ErrLost, c.ID, fresh.SeenSeq, fresh.SyncedSeq)
		}
	}
	return nil
}

// parked reads the parked claims of a campaign.
func (h *Hydrator) Parked(ctx context.Context, id string) (*writer.ParkedClaims, error) {
	pool, err := h.Db.DB()
	if err != nil {
		return nil, fmt.Errorf("syncer: campaign %s: %w", id, err)
	}
	return writer.ReadParked(ctx, pool, id)
}

// drained waits until the rows hold all that the claim stream, such as it is, has to tell of a fenced campaign.
func (h *Hydrator) drained(ctx context.Context, c *models.Campaign) error {
	if err := h.fence(ctx, c); err != nil {
		return err
	}
	stream, err := h.Scripts.Stream(ctx, c.Partition)
	if err != nil {
		return fmt.Errorf("syncer: rebuild %s: %w", c.ID, err)
	}
	return h.acknowledged(ctx, c, stream.Tip)
}

// acknowledged waits until the consumer group has acknowledged everything up to tip. Errors: ErrUnsynced.
func (h *Hydrator) acknowledged(ctx context.Context, c *models.Campaign, tip lua.EntryID) error {
	for until := time.Now().Add(h.cfg.ProofWait); ; {
		unread, err := h.Scripts.Unread(ctx, c.Partition, h.cfg.Group)
		switch {
		case err != nil:
			return fmt.Errorf("syncer: rebuild %s: %w", c.ID, err)
		case unread.Upto(tip):
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%w: group %s is at %s with %d pending, the stream at %s", ErrUnsynced, h.cfg.Group,
				unread.Delivered, unread.Pending, tip)
		}
		if err := sleep.For(ctx, proofPoll); err != nil {
			return fmt.Errorf("syncer: rebuild %s: %w", c.ID, err)
		}
	}
}
