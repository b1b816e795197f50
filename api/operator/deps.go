package operator

import (
	"context"
	"time"

	"dibs/models"
)

// Campaigns keeps the definitions of campaigns in MySQL and brings changes
// to Redis. Errors: models.ErrNotFound, models.ErrExists,
// *models.FieldError; any other means that MySQL or Redis does not answer.
type Campaigns interface {
	// Create answers created=false for the same campaign again, and
	// models.ErrExists for other content under the same id.
	Create(ctx context.Context, c models.Campaign) (stored models.Campaign, created bool, err error)
	Get(ctx context.Context, id string) (models.Campaign, error)
	// List reads the campaigns that a query selects.
	List(ctx context.Context, q models.CampaignQuery) ([]models.Campaign, error)
	// Change returns when the change is in force for the next claim.
	// Errors beyond the above: models.ErrChanged.
	Change(ctx context.Context, id string, change models.Change) (models.Campaign, error)
	// Pause pauses a campaign in Redis alone, and returns what Redis knows
	// of it. Errors: models.ErrClosed, and those of Redis.
	Pause(ctx context.Context, id string) (models.Campaign, error)
	// PauseAll is Pause for every open campaign; isAll is false when MySQL
	// did not say in that time which these are: then it is those that
	// Redis holds.
	PauseAll(ctx context.Context, mysqlFor time.Duration) (paused []string, isAll bool, err error)
	// AddPackets stores all packets of a batch or none. The same list, or
	// the same key, again adds nothing. Errors beyond the above:
	// models.ErrClosed, models.ErrKeyMismatch.
	AddPackets(ctx context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error)
	// ShardsOf reads the shards of a campaign: what they have on loan by
	// MySQL, and how far Redis is with each.
	ShardsOf(ctx context.Context, id string) (models.ShardsOf, error)
	// Books reads units and claims that have their rows.
	Books(ctx context.Context, id string) (models.Books, error)
}
