package campaigns

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
)

// ErrLost says that a campaign was in Redis before and is not there now, or not as MySQL knows it. Nothing is claimed until
// it is rebuilt: claims that were answered since then may not be in MySQL yet.
var ErrLost = errors.New("campaigns: campaign lost from redis")

// ErrMoved is an ErrLost that need not be a loss: the campaign was loaded or evicted while it was checked.
var ErrMoved = fmt.Errorf("%w, or loaded or evicted in the meantime", ErrLost)

// MySQLRolledBack begins the reason of a campaign that is lost because MySQL was restored.
const MySQLRolledBack = "mysql was rolled back"

// Applier sends the newest definition of a campaign to Redis. Any number may run at once, in any process.
type Applier struct {
	db      *gorm.DB
	scripts *lua.Scripts
	steps   *steps.Steps
}

// NewApplier makes an applier. It names its steps to observed.
func NewApplier(db *gorm.DB, scripts *lua.Scripts, observed *steps.Steps) Applier {
	return Applier{db: db, scripts: scripts, steps: observed}
}

// Read reads a campaign. Errors: models.ErrNotFound, and ErrPartitions when this process runs with another number of
// partitions than the campaign was made with: it would look for the campaign where it is not, and take it for lost.
func (a Applier) Read(ctx context.Context, id string) (models.Campaign, error) {
	c, err := Read(a.db.WithContext(ctx), id)
	if err != nil {
		return models.Campaign{}, err
	}
	return c, SamePartition(&c, a.scripts.Partitions())
}

// SamePartition returns ErrPartitions if a lot is in another partition than the number of partitions says.
func SamePartition(c *models.Campaign, partitions int) error {
	if lua.PartitionOf(c.ID, partitions) != c.Partition {
		return fmt.Errorf("%w: campaign %s is in partition %d, by the %d of this process it would be in %d",
			ErrPartitions, c.ID, c.Partition, partitions, lua.PartitionOf(c.ID, partitions))
	}
	return nil
}

// Apply compares Redis with MySQL and sends Redis what it lacks: packets, and the definition. The campaign is resident.
// Errors: ErrLost, models.ErrNotFound, ErrPartitions, and those of lua.Scripts.
func (a Applier) Apply(ctx context.Context, id string) error {
	c, err := a.Read(ctx, id)
	if err != nil {
		return err
	}
	if !IsResident(&c) {
		return fmt.Errorf("%w: %s: it is %s", ErrMoved, id, c.Residency)
	}
	state, err := a.scripts.State(ctx, id)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return fmt.Errorf("%w: %s: epoch %d was loaded, nothing is there", ErrMoved, id, c.Epoch)
	case err != nil:
		return fmt.Errorf("campaigns: apply %s: %w", id, err)
	case state.Epoch != c.Epoch:
		return fmt.Errorf("%w: %s: redis holds epoch %d, mysql knows epoch %d", ErrMoved, id, state.Epoch, c.Epoch)
	}
	if c.Kind == models.KindPacket {
		if err := a.push(ctx, &c, &state); err != nil { // before the version, which says that Redis knows them
			return err
		}
	}
	if state.Version < c.Version {
		if _, err := a.scripts.Adjust(ctx, &c); err != nil {
			return fmt.Errorf("campaigns: apply %s: %w", id, err)
		}
	}
	if c.AppliedVersion == c.Version {
		return nil
	}
	return RecordApplied(ctx, a.db, []string{id}, c.Version)
}

// RecordApplied is the second transaction of a change: Redis works by that version of some lots now, so remaining is exact again. If a
// definition has changed once more, remaining becomes exact with that change.
func RecordApplied(ctx context.Context, db *gorm.DB, ids []string, version int64) error {
	err := sqlstore.Retry(ctx, func() error {
		return sqlstore.On(db.WithContext(ctx)).Run("UPDATE lots SET redis_total = CASE WHEN (SELECT version FROM definitions"+
			" WHERE definitions.campaign_id = lots.campaign_id) = ? THEN 0 ELSE redis_total END,"+
			" applied_version = CASE WHEN applied_version < ? THEN ? ELSE applied_version END WHERE id IN ?",
			version, version, version, ids)
	})
	if err != nil {
		return fmt.Errorf("campaigns: apply %s: %w", ids, err)
	}
	return nil
}

// Known is how far Redis must be with a campaign that is resident by its books, but for its releases, see residency.Hydrator.
func Known(c *models.Campaign) lua.Position {
	return lua.Position{Epoch: c.Epoch, Seq: max(c.SyncedSeq, c.SeenSeq), Version: c.AppliedVersion}
}

// IsResident reports whether Redis holds the campaign, as far as MySQL knows.
func IsResident(c *models.Campaign) bool {
	return c.Residency == models.ResidencyResident
}
