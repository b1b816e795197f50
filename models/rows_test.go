package models_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"dibs/internal/migrations"
	"dibs/models"
)

// Each field of each struct needs its column in the migrations' tables.
func TestEveryRowHasItsTable(t *testing.T) {
	t.Parallel()
	db, err := gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "dibs.db")), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	_, err = migrations.Up(t.Context(), pool, migrations.SQLite)
	require.NoError(t, err)
	for table, row := range map[string]any{
		"defined_lots": &models.Campaign{}, "claims": &models.ClaimRow{}, "stock_flushes": &models.StockFlush{}, "parked_events": &models.ParkedEvent{},
		"outbox": &models.OutboxRow{}, "settings": &models.Setting{}, "streams": &models.StreamRecord{}, "packets": &models.PacketRow{},
		"packet_batches": &models.PacketBatchRow{}, "reconciliations": &models.Reconciliation{}, "repairs": &models.Repair{},
		"hold_cursors": &models.HoldCursor{}, "hold_dues": &models.HoldDue{}, "claim_orders": &models.ClaimOrder{}, "hold_extensions": &models.HoldExtension{}, "consumer_groups": &models.ConsumerGroup{}, "webhook_events": &models.WebhookEvent{},
	} {
		parsed, err := schema.Parse(row, &sync.Map{}, db.NamingStrategy)
		require.NoError(t, err)
		require.Equal(t, table, parsed.Table)
		require.NoError(t, db.Exec("SELECT 1 FROM "+table).Error)
		for _, field := range parsed.Fields {
			if field.DBName == "" {
				continue // it is not stored
			}
			require.NoError(t, db.Exec("SELECT "+field.DBName+" FROM "+table).Error)
		}
		if table != "defined_lots" { // a view
			require.Equal(t, keysOf(t, db, table), parsed.PrimaryFieldDBNames, table)
		}
	}
}

func keysOf(t *testing.T, db *gorm.DB, table string) (keys []string) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table).Scan(&keys).Error)
	return keys
}
