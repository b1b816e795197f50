package writer

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/migrations"
)

// The counters move by the rows that this very flush put into stock_flushes, and by nothing else. stock_flushes leads the
// join, so that only the campaigns of the batch are locked, in order of their ids. remaining is computed from its own old
// value only: MySQL assigns from left to right, and later columns see the new values.
func moveBooksMySQL(table, on string) string {
	return "UPDATE stock_flushes f STRAIGHT_JOIN " + table + " c ON " + on +
		" SET c.remaining = GREATEST(c.remaining - f.units, 0), c.claimed = c.claimed + f.units," +
		" c.synced_seq = c.synced_seq + f.claims, c.updated_at = ? WHERE c.archived_claims = 0 AND f.id IN ("
}

func moveBooksSQLite(table, on string) string {
	return "UPDATE " + table + " AS c SET remaining = MAX(c.remaining - f.units, 0), claimed = c.claimed + f.units," +
		" synced_seq = c.synced_seq + f.claims, updated_at = ? FROM stock_flushes f" +
		" WHERE " + on + " AND c.archived_claims = 0 AND f.id IN ("
}

// sumsOfShards are the sums of a flush by campaign. A campaign of several shards has the sums of its shards. Its remaining needs no care
// for a change on its way: of units that a change takes away Redis has let go before, and of those that it adds Redis hears later.
const sumsOfShards = "(SELECT campaign_id, SUM(units) AS units, SUM(claims) AS claims FROM stock_flushes WHERE id IN ("

// moveBooks moves the counters of all campaigns of a flush by one UPDATE, and those of shards and of their campaigns by two more, if it
// has any. It fails with errUnknownCampaign when one does not exist, or has all its claims and some of them in the archive.
func moveBooks(ctx context.Context, tx *sql.Tx, dialect string, flushes *flushIDs, now time.Time) error {
	at := now.UTC().Format(sqlstore.TimeLayout)
	err := moveTable(ctx, tx, dialect, "campaigns", "c.id = f.campaign_id", flushes.campaigns, at)
	if err != nil || len(flushes.shards) == 0 {
		return err
	}
	err = moveTable(ctx, tx, dialect, "campaign_shards", "c.campaign_id = f.campaign_id AND c.shard = f.shard", flushes.shards, at)
	if err != nil {
		return err
	}
	sums := sumsOfShards + quoted(flushes.shards)
	//nolint:gosec // constants, and UUIDs made here
	query := "UPDATE " + sums + ") GROUP BY campaign_id) f STRAIGHT_JOIN campaigns c ON c.id = f.campaign_id SET" +
		" c.remaining = CASE WHEN c.total > c.claimed + f.units THEN c.total - c.claimed - f.units ELSE 0 END," +
		" c.claimed = c.claimed + f.units, c.synced_seq = c.synced_seq + f.claims, c.updated_at = ?"
	if dialect == migrations.SQLite {
		query = "UPDATE campaigns AS c SET" +
			" remaining = CASE WHEN c.total > c.claimed + f.units THEN c.total - c.claimed - f.units ELSE 0 END," +
			" claimed = c.claimed + f.units, synced_seq = c.synced_seq + f.claims, updated_at = ? FROM " +
			sums + ") GROUP BY campaign_id) f WHERE c.id = f.campaign_id"
	}
	_, err = tx.ExecContext(ctx, query, at)
	return err
}

// moveTable moves the counters of one table.
func moveTable(ctx context.Context, tx *sql.Tx, dialect, table, on string, ids []string, at string) error {
	if len(ids) == 0 {
		return nil
	}
	head := moveBooksMySQL(table, on)
	if dialect == migrations.SQLite {
		head = moveBooksSQLite(table, on)
	}
	moved, err := sqlstore.Exec(ctx, tx, head+quoted(ids)+")", at)
	if err != nil {
		return err
	}
	// synced_seq grows in each row that matches, so as many rows are changed as match.
	if moved != int64(len(ids)) {
		return sqlstore.Final(errUnknownCampaign)
	}
	return nil
}

// quoted lists ids that were made here.
func quoted(ids []string) string { return "'" + strings.Join(ids, "','") + "'" }
