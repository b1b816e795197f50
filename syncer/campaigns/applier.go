package campaigns

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"

	"gorm.io/gorm"
)

// ErrMoved says that a lot was loaded or evicted while it was changed.
var ErrMoved = fmt.Errorf("%w: the campaign was loaded or evicted meanwhile", lua.ErrUnavailable)

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

// Apply compares Redis with MySQL and sends Redis what it lacks: packets, and the definition. A lot that is away gets them when it is
// loaded. The entry of the change tells MySQL that Redis has it. Errors: models.ErrNotFound, ErrPartitions, and those of lua.Scripts.
func (a Applier) Apply(ctx context.Context, id string) error {
	c, err := a.Read(ctx, id)
	if err != nil {
		return err
	}
	err = a.send(ctx, &c)
	if err != nil && !errors.Is(err, lua.ErrAbsent) {
		return fmt.Errorf("campaigns: apply %s: %w", id, err)
	}
	return nil
}

// send sends a lot that is live what it lacks.
func (a Applier) send(ctx context.Context, c *models.Campaign) error {
	state, err := a.scripts.State(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.Kind == models.KindPacket {
		if err := a.push(ctx, c, &state); err != nil { // before the version, which says that Redis knows them
			return err
		}
	}
	if state.Version < c.Version {
		_, err = a.scripts.Adjust(ctx, c)
	}
	return err
}

// IsResident reports whether Redis holds the campaign, as far as MySQL knows.
func IsResident(c *models.Campaign) bool {
	return c.Residency == models.ResidencyResident
}
