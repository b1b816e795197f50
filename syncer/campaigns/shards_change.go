package campaigns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

var (
	// ErrTaken says that the units that a change takes away are not free.
	ErrTaken = errors.New("campaigns: the units are taken")

	// errGather says that the reserve holds fewer units than a change takes away.
	errGather = errors.New("campaigns: the reserve holds too few units")
)

// Gatherer calls units of a campaign back from its shards.
type Gatherer interface {
	// Gather returns nil when the reserve held so many units at a moment; others may have taken them since. Errors: ErrTaken when so many
	// were not free at a moment, and those of a Redis or MySQL that is away.
	Gather(ctx context.Context, campaignID string, units int64) error
}

// GatherBy has the totals of campaigns of several shards lowered by what g gathers. It is called before r is used.
func (r *Repository) GatherBy(g Gatherer) { r.gatherer = g }

// gatherMost bounds how often units are gathered for one change, while claims take them.
const gatherMost = 20

// changeGathering changes a campaign in MySQL. A lower total of a campaign of several shards takes its units out of the reserve, into which
// they are gathered first: so no shard has them any more when the change is made.
func (r *Repository) changeGathering(ctx context.Context, id string, change models.Change) (c models.Campaign, err error) {
	for range gatherMost {
		c, err = r.change(ctx, id, change)
		if !errors.Is(err, errGather) || r.gatherer == nil {
			return c, err
		}
		before, readErr := r.Get(ctx, id)
		if readErr != nil {
			return models.Campaign{}, readErr
		}
		switch err := r.gatherer.Gather(ctx, id, before.Total-*change.Total); {
		case errors.Is(err, ErrTaken):
			return models.Campaign{}, &models.FieldError{Field: "total", Reason: "must not be below what is taken, in a campaign of several shards"}
		case err != nil:
			return models.Campaign{}, err
		}
	}
	return models.Campaign{}, fmt.Errorf("campaigns: change %s: claims take units faster than they are gathered: %w", id, err)
}

// changeShards changes the shards of a campaign in the transaction that changes the campaign. What a shard has on loan stays.
func changeShards(tx *gorm.DB, before, c *models.Campaign) error {
	more := c.Total - before.Total
	c.Reserve += more
	if c.Reserve < 0 && more < 0 {
		return sqlstore.Final(fmt.Errorf("%w: campaign %s", errGather, c.ID))
	}
	isAnew := more > 0 && c.Total-c.Claimed > c.LowStockAt // it may cross its lines once more
	err := sqlstore.On(tx).Run("UPDATE lots SET total = ?, campaign_total = ?, told_line = CASE WHEN ? THEN 0 ELSE told_line END WHERE id = ?",
		c.Reserve, c.Total, isAnew, c.ID)
	if err != nil {
		return fmt.Errorf("campaigns: total of %s: %w", c.ID, err)
	}
	err = sqlstore.On(tx).Run("UPDATE lots SET per_user = ?, per_user_per_day = ?, limits = ?, starts_at = ?, ends_at = ?, status = ?,"+
		" version = ?, changes = ?, updated_at = ? WHERE campaign_id = ? AND shard > 0",
		c.PerUser, c.PerUserPerDay, c.Limits, timeText(c.StartsAt), timeText(c.EndsAt), c.Status, c.Version, c.Changes, sqlstore.Now(), c.ID)
	if err != nil {
		return fmt.Errorf("campaigns: change shards of %s: %w", c.ID, err)
	}
	return nil
}

func timeText(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format(sqlstore.TimeLayout)
}
