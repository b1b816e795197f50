package live

import (
	"context"

	"dibs/internal/softstate"
	"dibs/models"
)

// Redis reads the state of many campaigns in one round trip, and keeps the
// counts of answers that all API processes share.
type Redis interface {
	Watch(ctx context.Context, campaignIDs []string) ([]softstate.Watched, error)
	CountAnswers(ctx context.Context, all []softstate.Answers) error
}

// Books reads campaigns in MySQL.
type Books interface {
	// Active lists the campaigns that are neither closed nor evicted,
	// those whose books moved last first.
	Active(ctx context.Context, most int) ([]string, error)
	// Public lists the campaigns that the public may read, those that
	// changed last first.
	Public(ctx context.Context, most int) ([]string, error)
	// BooksOfAll reads many campaigns with their books; those that there
	// are not are missing.
	BooksOfAll(ctx context.Context, ids []string) (map[string]models.CampaignBooks, error)
}

var _ Redis = (*softstate.Store)(nil)
