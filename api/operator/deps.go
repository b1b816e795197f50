package operator

import (
	"context"
	"time"

	"dibs/models"
)

// Campaigns stores definitions of campaigns in MySQL and applies changes to
// Redis. Errors: models.ErrNotFound, models.ErrExists, *models.FieldError;
// any other means that MySQL or Redis doesn't answer.
type Campaigns interface {
	// Create returns created=false for an identical campaign, and
	// models.ErrExists for other content under the same id.
	Create(ctx context.Context, c models.Campaign) (stored models.Campaign, created bool, err error)
	Get(ctx context.Context, id string) (models.Campaign, error)
	// List reads the campaigns that a query selects.
	List(ctx context.Context, q models.CampaignQuery) ([]models.Campaign, error)
	// Change returns once the change applies to the next claim. Further
	// errors: models.ErrChanged.
	Change(ctx context.Context, id string, change models.Change) (models.Campaign, error)
	// Pause pauses a campaign only in Redis, and returns what Redis knows
	// of it. Errors: models.ErrClosed, and those of Redis.
	Pause(ctx context.Context, id string) (models.Campaign, error)
	// PauseAll is Pause for every open campaign. isAll is false if MySQL
	// didn't list them within mysqlFor: then only those in Redis are paused.
	PauseAll(ctx context.Context, mysqlFor time.Duration) (paused []string, isAll bool, err error)
	// AddPackets stores all packets of a batch or none. The same list or
	// key again adds nothing. Further errors: models.ErrClosed,
	// models.ErrKeyMismatch.
	AddPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error)
	// ShardsOf reads a campaign's shards: their units from MySQL, and their
	// progress from Redis.
	ShardsOf(ctx context.Context, id string) (models.ShardsOf, error)
	// Books reads the units and claims that have rows.
	Books(ctx context.Context, id string) (models.Books, error)
}
