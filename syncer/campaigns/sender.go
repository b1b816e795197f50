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

// Sender sends the newest definition to Redis. Any number may run at once.
type Sender struct {
	db      *gorm.DB
	scripts *lua.Scripts
	steps   *steps.Steps
}

// NewSender returns an sender whose steps a test can observe.
func NewSender(db *gorm.DB, scripts *lua.Scripts, observed *steps.Steps) Sender {
	return Sender{db: db, scripts: scripts, steps: observed}
}

// Read reads a campaign. Errors: models.ErrNotFound,
// and settings.ErrPartitions if this process has another number
// of partitions. It would then use the wrong slot.
func (s Sender) Read(ctx context.Context, id string) (models.Campaign, error) {
	c, err := Read(s.db.WithContext(ctx), id)
	if err != nil {
		return models.Campaign{}, err
	}
	return c, SamePartition(&c, s.scripts.Partitions())
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

// Send sends a live lot's newest definition and packets to
// Redis and the claim stream. Errors: models.ErrNotFound,
// settings.ErrPartitions, and those of lua.Scripts.
func (s Sender) Send(ctx context.Context, id string) error { return s.sendNewest(ctx, id, false) }

// Publish is Send, also for a lot that is away. The stream gets the change,
// and a later load applies it. The entry in the stream confirms it to MySQL.
func (s Sender) Publish(ctx context.Context, id string) error { return s.sendNewest(ctx, id, true) }

func (s Sender) sendNewest(ctx context.Context, id string, alsoAway bool) error {
	c, err := s.Read(ctx, id)
	if err != nil {
		return err
	}
	state, err := s.scripts.State(ctx, id)
	isAway := errors.Is(err, lua.ErrAbsent)
	switch {
	case isAway && !alsoAway:
		return nil
	case err == nil || isAway:
		err = s.send(ctx, &c, state, isAway)
	}
	if err != nil && !errors.Is(err, lua.ErrAbsent) {
		return fmt.Errorf("campaigns: send %s: %w", id, err)
	}
	return nil
}

func (s Sender) send(ctx context.Context, c *models.Campaign, state lua.State, isAway bool) error {
	if c.Kind == models.KindPacket { // before the version, which confirms them
		last, err := s.PublishPackets(ctx, c)
		if err == nil && !isAway {
			err = s.push(ctx, c, &state, last)
		}
		if err != nil {
			return err
		}
	}
	definitions, err := ReadDefinitions(s.db.WithContext(ctx), []string{c.ID})
	if err != nil {
		return err
	}
	_, err = s.scripts.Adjust(ctx, c, definitions[c.ID])
	return err
}

// IsResident reports whether MySQL takes the campaign to be in Redis.
func IsResident(c *models.Campaign) bool {
	return c.Residency == models.ResidencyResident
}
