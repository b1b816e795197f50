package live

import (
	"context"

	"dibs/internal/softstate"
	"dibs/models"
)

// Redis reads the state of many campaigns in one round trip, and sums up
// the API processes' counts of answers.
type Redis interface {
	Watch(ctx context.Context, campaignIDs []string) ([]softstate.Watched, error)
	CountAnswers(ctx context.Context, all []softstate.Answers) error
}

// Books reads campaigns in MySQL.
type Books interface {
	// Active lists the campaigns that are neither closed nor evicted, those
	// whose counters changed last first.
	Active(ctx context.Context, most int) ([]string, error)
	// Public lists the campaigns that the public may read, those that
	// changed last first.
	Public(ctx context.Context, most int) ([]string, error)
	// BooksOfAll reads many campaigns with their counters. Missing
	// campaigns are absent from the map.
	BooksOfAll(ctx context.Context, ids []string) (map[string]models.CampaignBooks, error)
}

var _ Redis = (*softstate.Store)(nil)
