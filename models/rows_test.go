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
	"dibs/models/stored"
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
		"defined_lots": &models.Campaign{}, "claims": &stored.ClaimRow{}, "stock_flushes": &stored.StockFlush{}, "parked_events": &stored.ParkedEvent{},
		"outbox": &stored.OutboxRow{}, "settings": &stored.Setting{}, "streams": &stored.StreamRecord{}, "packets": &stored.PacketRow{},
		"packet_batches": &models.PacketBatchRow{}, "reconciliations": &stored.Reconciliation{}, "repairs": &stored.Repair{},
		"hold_cursors": &stored.HoldCursor{}, "hold_dues": &stored.HoldDue{}, "claim_orders": &stored.ClaimOrder{}, "hold_extensions": &stored.HoldExtension{}, "consumer_groups": &stored.ConsumerGroup{}, "webhook_events": &stored.WebhookEvent{},
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
