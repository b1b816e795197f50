package campaigns

import (
	"context"
	"fmt"
	"slices"

	"dibs/models"

	"gorm.io/gorm"
)

// Lots fetches columns of lots by ID, up to size, for sqlstore.Pages
// and sqlstore.EachRow. The condition where calls the table lot.
func Lots(
	ctx context.Context, db *gorm.DB, size int, columns, where string, args ...any,
) func(after string) ([]models.Campaign, error) {
	query := "SELECT " + columns + " FROM defined_lots AS lot WHERE id > ? AND (" + where + ") ORDER BY id LIMIT ?"
	return func(after string) (page []models.Campaign, err error) {
		values := slices.Concat([]any{after}, args, []any{size})
		err = db.WithContext(ctx).Raw(query, values...).Scan(&page).Error
		if err != nil {
			return nil, fmt.Errorf("campaigns: read lots: %w", err)
		}
		return page, nil
	}
}

// ID is the key of campaigns and lots, for sqlstore.Pages and
// sqlstore.EachRow.
func ID(c *models.Campaign) string { return c.ID }

// ReadDefinitions reads the definitions of lots, by lot.
func ReadDefinitions(db *gorm.DB, lots []string) (map[string]*models.Definition, error) {
	campaigns := make([]string, len(lots))
	for i, id := range lots {
		campaigns[i], _ = models.SplitShardID(id)
	}
	var rows []models.Definition
	err := db.Table("definitions").Select("definitions.*, lots.total").
		Joins("JOIN lots ON lots.campaign_id = definitions.campaign_id AND lots.shard = 0").
		Where("definitions.campaign_id IN ?", campaigns).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: definitions of %s: %w", lots, err)
	}
	of := make(map[string]*models.Definition, len(lots))
	for i, id := range lots {
		at := slices.IndexFunc(rows, func(d models.Definition) bool { return d.CampaignID == campaigns[i] })
		if at >= 0 {
			of[id] = &rows[at]
		}
	}
	return of, nil
}
