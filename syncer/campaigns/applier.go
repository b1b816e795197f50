package campaigns

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/steps"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/settings"

	"gorm.io/gorm"
)

// ErrMoved reports that a lot was loaded or evicted during a change.
var ErrMoved = fmt.Errorf("%w: the campaign was loaded or evicted during the change", lua.ErrUnavailable)

// Applier sends the newest definition to Redis. Any number may run at once.
type Applier struct {
	db      *gorm.DB
	scripts *lua.Scripts
	steps   *steps.Steps
}

// NewApplier returns an applier whose steps a test can observe.
func NewApplier(db *gorm.DB, scripts *lua.Scripts, observed *steps.Steps) Applier {
	return Applier{db: db, scripts: scripts, steps: observed}
}

// Read reads a campaign. Errors: models.ErrNotFound,
// and settings.ErrPartitions if this process has another number
// of partitions. It would then use the wrong slot.
func (a Applier) Read(ctx context.Context, id string) (models.Campaign, error) {
	c, err := Read(a.db.WithContext(ctx), id)
	if err != nil {
		return models.Campaign{}, err
	}
	return c, SamePartition(&c, a.scripts.Partitions())
}

// SamePartition returns settings.ErrPartitions if this
// number of partitions puts a lot elsewhere.
func SamePartition(c *models.Campaign, partitions int) error {
	if lua.PartitionOf(c.ID, partitions) != c.Partition {
		return fmt.Errorf("%w: campaign %s is in partition %d, by the %d of this process it would be in %d",
			settings.ErrPartitions, c.ID, c.Partition, partitions, lua.PartitionOf(c.ID, partitions))
	}
	return nil
}

// Apply sends a live lot's newest definition and packets to
// Redis and the claim stream. Errors: models.ErrNotFound,
// settings.ErrPartitions, and those of lua.Scripts.
func (a Applier) Apply(ctx context.Context, id string) error { return a.apply(ctx, id, false) }

// Publish is Apply, also for a lot that is away. The stream gets the change,
// and a later load applies it. The entry in the stream confirms it to MySQL.
func (a Applier) Publish(ctx context.Context, id string) error { return a.apply(ctx, id, true) }

func (a Applier) apply(ctx context.Context, id string, alsoAway bool) error {
	c, err := a.Read(ctx, id)
	if err != nil {
		return err
	}
	state, err := a.scripts.State(ctx, id)
	isAway := errors.Is(err, lua.ErrAbsent)
	switch {
	case isAway && !alsoAway:
		return nil
	case err == nil || isAway:
		err = a.send(ctx, &c, state, isAway)
	}
	if err != nil && !errors.Is(err, lua.ErrAbsent) {
		return fmt.Errorf("campaigns: apply %s: %w", id, err)
	}
	return nil
}

func (a Applier) send(ctx context.Context, c *models.Campaign, state lua.State, isAway bool) error {
	if c.Kind == models.KindPacket { // before the version, which confirms them
		last, err := a.PublishPackets(ctx, c)
		if err == nil && !isAway {
			err = a.push(ctx, c, &state, last)
		}
		if err != nil {
			return err
		}
	}
	definitions, err := ReadDefinitions(a.db.WithContext(ctx), []string{c.ID})
	if err != nil {
		return err
	}
	_, err = a.scripts.Adjust(ctx, c, definitions[c.ID])
	return err
}

// IsResident reports whether MySQL takes the campaign to be in Redis.
func IsResident(c *models.Campaign) bool {
	return c.Residency == models.ResidencyResident
}
