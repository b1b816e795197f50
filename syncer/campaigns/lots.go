package campaigns

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dibs/models"

	"gorm.io/gorm"
)

// Lots fetches lots for sqlstore.Pages and sqlstore.EachRow, by ID: up to size of those for which a condition is true, of both tables
// of books, with the named columns alone. The condition calls either table lot.
func Lots(ctx context.Context, db *gorm.DB, size int, columns, where string, args ...any) func(after string) ([]models.Campaign, error) {
	return func(after string) (page []models.Campaign, err error) {
		for _, table := range models.BooksTables {
			var rows []models.Campaign
			err := db.WithContext(ctx).Raw("SELECT "+columns+" FROM "+table+" AS lot WHERE id > ? AND ("+where+") ORDER BY id LIMIT ?",
				slices.Concat([]any{after}, args, []any{size})...).Scan(&rows).Error
			if err != nil {
				return nil, fmt.Errorf("campaigns: read %s: %w", table, err)
			}
			page = append(page, rows...)
		}
		slices.SortFunc(page, func(a, b models.Campaign) int { return strings.Compare(a.ID, b.ID) })
		return page[:min(len(page), size)], nil
	}
}

// ID is the key of campaigns and of lots, for sqlstore.Pages and sqlstore.EachRow.
func ID(c *models.Campaign) string { return c.ID }
