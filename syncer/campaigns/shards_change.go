package campaigns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
)

// ErrTaken says that the units that a change takes away are not free.
var ErrTaken = errors.New("campaigns: the units are taken")

// Gatherer takes units of a campaign of several shards out of its lots.
type Gatherer interface {
	// Lower has the reserve debit units to the campaign's total until these are so many, and returns how many they are then: more, if a change
	// died after it. Errors: ErrTaken when so many were not free at a moment, and those of a Redis that is away.
	Lower(ctx context.Context, campaignID string, upto int64) (lowered int64, err error)
}

// GatherBy has the totals of campaigns of several shards lowered by what g takes out. It is called before r is used.
func (r *Repository) GatherBy(g Gatherer) { r.gatherer = g }

// maxLowerings bounds how often units are taken out for one change, while others change the total.
const maxLowerings = 5

// changeGathering changes a campaign in MySQL. A lower total of a campaign of several shards is what Redis says first: the units are taken
// out of its lots. What was taken out and is not needed comes back when the change is applied.
func (r *Repository) changeGathering(ctx context.Context, id string, change models.Change) (c models.Campaign, err error) {
	for range maxLowerings {
		before, err := r.Get(ctx, id)
		if err != nil {
			return models.Campaign{}, err
		}
		if !before.IsSharded() || change.Total == nil || *change.Total >= before.Total || r.gatherer == nil {
			return r.change(ctx, &before, change, 0)
		}
		if err := checked(before, change); err != nil {
			return models.Campaign{}, err
		}
		lowered, err := r.gatherer.Lower(ctx, id, before.Lowered+before.Total-*change.Total)
		if errors.Is(err, ErrTaken) {
			return models.Campaign{}, &models.FieldError{Field: "total", Reason: "must not be below what is taken, in a campaign of several shards"}
		}
		if err != nil {
			return models.Campaign{}, err
		}
		c, err = r.change(ctx, &before, change, lowered)
		if !errors.Is(err, errGather) {
			return c, err
		}
	}
	return c, errGather
}

// checked refuses a change that would be refused in MySQL, before units are taken out for it.
func checked(before models.Campaign, change models.Change) error {
	if !change.Fits(before.Version) {
		return fmt.Errorf("%w: campaign %s", models.ErrChanged, before.ID)
	}
	change.Apply(&before)
	return before.Validate()
}

// errGather says that the units that a change takes away were not taken out of the lots.
var errGather = errors.New("campaigns: others change the total")

// changeShards changes what a campaign of several shards has beside, in the transaction that changes it. The units of its lots stay. lowered is by how many units
// the total was ever lowered, by Redis; 0 is no change.
func changeShards(tx *gorm.DB, before, c *models.Campaign, lowered int64) error {
	more := c.Total - before.Total
	c.Lowered = max(before.Lowered, lowered)
	if before.Lowered-more > c.Lowered {
		return sqlstore.Final(fmt.Errorf("%w: campaign %s", errGather, c.ID))
	}
	isAnew := more > 0 && c.Total-c.Claimed > c.LowStockAt // it may cross its lines once more
	err := sqlstore.On(tx).Run("UPDATE definitions SET lowered = ?, told_line = CASE WHEN ? THEN 0 ELSE told_line END WHERE campaign_id = ?",
		c.Lowered, isAnew, c.ID)
	if err != nil {
		return fmt.Errorf("campaigns: total of %s: %w", c.ID, err)
	}
	return nil
}

// lockLots locks the lots of a campaign before the campaign itself, the order of writer.MoveCounters: in another one, changes and flushes
// end in deadlocks. A scan of a small table would lock more.
func lockLots(tx *gorm.DB, c *models.Campaign) error {
	if tx.Name() == migrations.SQLite {
		return nil // a transaction that writes is alone
	}
	var n int
	err := sqlstore.On(tx).Scan(&n, "SELECT COUNT(total) FROM lots FORCE INDEX (PRIMARY) WHERE campaign_id = ? AND shard > 0 FOR UPDATE", c.ID)
	if err != nil {
		return fmt.Errorf("campaigns: lock lots of %s: %w", c.ID, err)
	}
	return nil
}

// raise brings the reserve of a campaign the units by which its total was raised. state is what Redis holds of the reserve.
func (a Applier) raise(ctx context.Context, reserve *models.Campaign, state *lua.State) error {
	id, _ := models.SplitShardID(reserve.ID)
	c, err := Read(a.db.WithContext(ctx), id)
	if err != nil || c.Kind == models.KindPacket || state.In[0] >= c.Total+c.Lowered {
		return err
	}
	_, err = a.scripts.Credit(ctx, reserve, &lua.Credit{Seen: state.Progress(), PeerLoad: 1, Upto: c.Total + c.Lowered})
	if err != nil {
		return fmt.Errorf("campaigns: raise %s: %w", id, err)
	}
	return nil
}

func timeText(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format(sqlstore.TimeLayout)
}
