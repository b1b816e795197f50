package writer_test

import (
	"strings"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// dumped are the tables that a flush writes, and the columns that the server works out by itself.
var dumped = map[string]string{
	"definitions": "", "lots": "id remaining", "claims": "", "streams": "", "stream_positions": "", "stock_flushes": "", "parked_events": "",
	"packets": "",
}

// dump is what the tables hold at one moment.
type dump map[string][]map[string]any

func dumpOf(t require.TestingT, db *gorm.DB) dump {
	d := make(dump)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		for table := range dumped {
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

// restore puts the database back to that moment.
func (d dump) restore(t require.TestingT, db *gorm.DB) { require.NoError(t, d.tryRestore(db)) }

func (d dump) tryRestore(db *gorm.DB) error {
	return db.Transaction(func(tx *gorm.DB) error {
		for table, generated := range dumped {
			if err := tx.Exec("DELETE FROM " + table).Error; err != nil {
				return err
			}
			for _, row := range d[table] {
				for _, column := range strings.Fields(generated) {
					delete(row, column)
				}
				if err := tx.Table(table).Create(row).Error; err != nil {
					return err
				}
			}
		}
		return nil
	})
}
