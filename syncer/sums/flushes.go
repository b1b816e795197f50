package sums

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/syncer/adder"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

const insertHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at," +
	" first_claimed_ms, shard, moved, waiting) VALUES "

// Insert inserts one row per lot into stock_flushes,
// and returns the ids.
func Insert(
	ctx context.Context, tx *gorm.DB, sums adder.Sums, waiting map[adder.Lot]error,
	took time.Duration, now time.Time,
) (ids map[adder.Lot]string, err error) {
	s := sqlstore.NewStatement(insertHead, len(sums)*sqlstore.RowBytes)
	ids = make(map[adder.Lot]string, len(sums))
	for _, lot := range sums.Lots() {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		sum := sums[lot]
		s.BeginRow(len(ids))
		ids[lot] = id.String()
		s.Text(id.String())
		s.Text(lot.CampaignID)
		s.Int(sum.Units)
		s.Int(sum.Claims)
		s.Int(sum.FirstSeq)
		s.Int(sum.LastSeq)
		s.Int(took.Milliseconds())
		s.Time(now)
		s.Int(sum.FirstMs)
		s.Int(int64(lot.Shard))
		s.Int(sum.Moved)
		s.IntOrNull(waitingMark(waiting, lot))
		s.EndRow()
	}
	if len(ids) == 0 {
		return ids, nil
	}
	_, err = sqlstore.Exec(ctx, tx, s.SQL(), s.Args...)
	return ids, err
}

func waitingMark(waiting map[adder.Lot]error, lot adder.Lot) *int64 {
	if _, waits := waiting[lot]; !waits {
		return nil
	}
	return new(int64(1))
}

// The sums lead the join and lots are found by key, so that only these
// are locked. A scan of a small table would lock all of it.
const (
	sumsOf = "SELECT campaign_id, shard, SUM(units) AS units, SUM(claims) AS claims, SUM(moved) AS moved" +
		" FROM stock_flushes WHERE id IN %[1]s GROUP BY campaign_id, shard UNION ALL" +
		" SELECT campaign_id, 0, SUM(units), SUM(claims), 0 FROM stock_flushes WHERE shard > 0 AND id IN %[1]s GROUP BY campaign_id"
	addMySQL = "UPDATE (" + sumsOf + ") f STRAIGHT_JOIN lots FORCE INDEX (PRIMARY)" +
		" ON lots.campaign_id = f.campaign_id AND lots.shard = f.shard SET lots.claimed = lots.claimed + f.units," +
		" lots.sold = lots.sold + f.units, lots.synced_seq = lots.synced_seq + f.claims," +
		" lots.total = lots.total + f.moved, lots.updated_at = ?"
	addSQLite = "UPDATE lots SET claimed = claimed + f.units, sold = sold + f.units," +
		" synced_seq = synced_seq + f.claims, total = total + f.moved, updated_at = ?" +
		" FROM (" + sumsOf + ") AS f WHERE lots.campaign_id = f.campaign_id AND lots.shard = f.shard"
)

// Add adds rows of stock_flushes to lots and to
// campaigns of several shards in one statement.
func Add(ctx context.Context, tx *gorm.DB, ids []string, now time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	list := "('" + strings.Join(ids, "','") + "')" // UUIDs need no escaping
	query := fmt.Sprintf(addMySQL, list)
	if tx.Name() == migrations.SQLite {
		query = fmt.Sprintf(addSQLite, list)
	}
	_, err := sqlstore.Exec(ctx, tx, query, now.UTC().Format(sqlstore.TimeLayout))
	return err
}
