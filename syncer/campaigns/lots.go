package campaigns

import (
	"context"
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// Lots fetches lots for sqlstore.Pages and sqlstore.EachRow, by ID: up to size of those for which a condition is true, with the named
// columns alone. The condition calls the table lot.
func Lots(ctx context.Context, db *gorm.DB, size int, columns, where string, args ...any) func(after string) ([]LotRow, error) {
	return func(after string) (page []LotRow, err error) {
		err = sqlstore.On(db.WithContext(ctx)).Scan(&page, "SELECT "+columns+" FROM defined_lots AS lot WHERE id > ? AND ("+where+") ORDER BY id LIMIT ?",
			slices.Concat([]any{after}, args, []any{size})...)
		if err != nil {
			return nil, fmt.Errorf("campaigns: read lots: %w", err)
		}
		return page, nil
	}
}

// LotRow is a row of a page of lots.
type LotRow struct {
	models.Campaign `gorm:"embedded"`

	ReloadUpto int64
}

// ID is the key of campaigns and of lots, for sqlstore.Pages and sqlstore.EachRow.
func ID(c *models.Campaign) string { return c.ID }
