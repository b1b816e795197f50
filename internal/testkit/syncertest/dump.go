package syncertest

import (
	"context"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Dumped maps the tables that a flush writes to their generated columns.
var Dumped = map[string]string{
	"definitions": "", "lots": "id remaining", "claims": "", "streams": "", "stream_positions": "", "stock_flushes": "", "parked_events": "",
	"packets": "", "packet_batches": "", "stock_moves": "", "outbox": "", "claim_orders": "", "hold_cursors": "",
	"hold_dues": "", "hold_extensions": "", "ledger_events": "",
}

// Dump is the content of Dumped at one moment.
type Dump map[string][]map[string]any

// DumpOf reads the tables.
func DumpOf(t require.TestingT, db *gorm.DB) Dump {
	d := make(Dump)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		for table := range Dumped {
			var rows []map[string]any
			if err := tx.Table(table).Find(&rows).Error; err != nil {
				return err
			}
			d[table] = rows
		}
		return nil
	}))
	return d
}

// Restore resets the tables to that moment.
func (d Dump) Restore(db *gorm.DB) error {
	return db.Transaction(func(tx *gorm.DB) error {
		for table, generated := range Dumped {
			if err := tx.Exec("DELETE FROM " + table).Error; err != nil {
				return err
			}
			for _, row := range d[table] {
				for column := range strings.FieldsSeq(generated) {
					delete(row, column)
				}
				if err := tx.Table(table).Create(maps.Clone(row)).Error; err != nil { // gorm adds to it
					return err
				}
			}
		}
		return nil
	})
}

// RedisDump is the content of a Redis at one moment.
type RedisDump map[string]string

// DumpRedis reads all keys.
func DumpRedis(t require.TestingT, rdb *redis.Client) RedisDump {
	d := make(RedisDump)
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		d[key], err = rdb.Dump(ctx, key).Result()
		require.NoError(t, err)
	}
	return d
}

// Restore resets a Redis to that moment, in one step.
func (d RedisDump) Restore(t require.TestingT, rdb *redis.Client) {
	ctx := context.Background()
	_, err := rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.FlushAll(ctx) //nolint:forbidigo // a server of its own
		for key, value := range d {
			tx.Restore(ctx, key, 0, value)
		}
		return nil
	})
	require.NoError(t, err)
}
