package finance_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"dibs/finance"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models/event"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

var nameOf = regexp.MustCompile(`^[^:.\n]+`)

// documented are the queries of docs/finance.md, by the first words of the
// comment before each.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/finance.md")
	require.NoError(t, err)
	queries := make(map[string]string)
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		for query := range strings.SplitSeq(strings.TrimSpace(block[1]), ";") {
			if query = strings.TrimSpace(query); query != "" {
				queries[nameOf.FindString(query)] = query
			}
		}
	}
	return queries
}

func answers(t *testing.T, db *gorm.DB, query string) int {
	t.Helper()
	require.NotEmpty(t, query)
	var rows []map[string]any
	require.NoError(t, db.Raw(query).Scan(&rows).Error, query)
	return len(rows)
}

// Each query of docs/finance.md must find its fault, and nothing in
// faultless books: for campaigns of one and of four shards.
func TestDocs_EachQueryFindsWhatItSays(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			testQueries(t, shards)
		})
	}
}

func testQueries(t *testing.T, shards int) {
	t.Helper()
	queries := documented(t)
	require.Len(t, queries, 9)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN})
	books := openBooks(t, finance.Config{DB: db})
	var events []event.Event
	for n := range 20 {
		e := packetClaim(n)
		if shards > 1 { // one has fewer claims than the others
			e.Shard = 1 + min(n/6, shards-1)
			e.Seq = int64(1 + n%6)
		}
		events = append(events, e)
	}
	for _, err := range handIn(t, books, append(events, closed(1000, "boss", 500))...) {
		require.NoError(t, err)
	}
	exec := func(query string, args ...any) { require.NoError(t, db.Exec(query, args...).Error) }
	exec("INSERT INTO definitions (campaign_id, kind, status, time_zone, currency, shards, created_at)"+
		" VALUES ('rain', 'packet', 'open', 'UTC', 'EUR', ?, NOW())", shards)
	exec("INSERT INTO lots (campaign_id, shard, partition_no, total, updated_at) VALUES ('rain', 0, 0, 100, NOW())")
	for _, e := range events {
		exec("INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, packet_id, amount, claimed_at, synced_at)"+
			" VALUES (?, 'rain', ?, ?, ?, 1, 'claimed', ?, ?, NOW(), NOW())", e.ID, e.Shard, e.Seq, e.UserID, e.PacketID, *e.Amount)
	}
	const shared, backfill = "-- Ghosts, in a database shared with Dibs", "-- Backfill, in a database shared with Dibs"
	faults := []string{"-- Holes", "-- Where the holes are", "-- Ghosts", shared, "-- Packets that were paid twice before the unique key existed",
		"-- Accounts that are not the sum of their entries", backfill}
	for _, name := range faults {
		require.Zero(t, answers(t, db, queries[name]), name)
	}
	exec("UPDATE account_entries SET claimed_at = '2026-11-21 12:00:00' WHERE seq <= 2")
	require.Equal(t, shards, answers(t, db, queries["-- A day's credits of claims, to compare with the settlement of the same day"]))

	first := events[0].Shard
	exec("UPDATE account_entries SET packet_id = CONCAT('double:', claim_id) WHERE shard = ? AND seq = 2", first)
	exec("DELETE FROM account_entries WHERE shard = ? AND seq = 3", first)
	exec("UPDATE account_entries SET seq = 5 WHERE shard = ? AND seq = 4", first)
	exec("DELETE FROM claims WHERE shard = ? AND seq = 1", first)
	for _, name := range faults {
		require.Positive(t, answers(t, db, queries[name]), name)
	}
}
