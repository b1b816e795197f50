package retention_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

var treeCost = regexp.MustCompile(`\(cost=([0-9.e+]+)[^)]*rows=([0-9.e+]+)`)

// TestDocs_PlansAtTenMillion tells what each query of docs/dba.md costs, on a MySQL of DIBS_TEST_MYSQL_DSN that has some 8 GB to spare:
//
//	DIBS_TEST_CAPACITY=1 DIBS_TEST_MYSQL_DSN='root@tcp(127.0.0.1:3306)/' go test ./syncer/retention -run PlansAtTenMillion -v -timeout 60m
//
// A tenth of the claims are of one campaign, the rest of 999 others; DIBS_TEST_CLAIMS says how many they are in all.
func TestDocs_PlansAtTenMillion(t *testing.T) {
	if os.Getenv("DIBS_TEST_CAPACITY") == "" {
		t.Skip("makes figures, and wants minutes and gigabytes")
	}
	t.Parallel()
	claims, err := strconv.Atoi(cmp.Or(os.Getenv("DIBS_TEST_CLAIMS"), "10000000"))
	require.NoError(t, err)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN})
	started := time.Now()
	fillBooks(t, db, claims)
	t.Logf("%d claims in %s", claims, time.Since(started).Round(time.Second))
	var table strings.Builder
	text, err := os.ReadFile("../../docs/dba.md")
	require.NoError(t, err)
	block := sqlBlock.FindStringSubmatch(string(text))[1]
	for part := range strings.SplitSeq(block, "\n\n") {
		about, query, _ := strings.Cut(strings.TrimSpace(part), "\n")
		table.WriteString(measured(t, db, strings.TrimPrefix(about, "-- "), strings.TrimSuffix(strings.TrimSpace(query), ";")))
	}
	t.Logf("\n| query | plan's cost | rows by the plan | rows read | ms |\n|---|---:|---:|---:|---:|\n%s", table.String())
}

// measured is a line of the table: what the plan says, and what the server did in a second run.
func measured(t *testing.T, db *gorm.DB, about, query string) string {
	t.Helper()
	var tree string
	require.NoError(t, db.Raw("EXPLAIN FORMAT=TREE "+query).Row().Scan(&tree), query)
	cost, rows := "", ""
	if found := treeCost.FindStringSubmatch(tree); found != nil { // none of a look-up by primary key, which is done when it is planned
		cost, rows = found[1], found[2]
	}
	var read int64
	var took time.Duration
	require.NoError(t, db.Connection(func(db *gorm.DB) error {
		for range 2 {
			if err := db.Exec("FLUSH STATUS").Error; err != nil {
				return err
			}
			started := time.Now()
			var found []map[string]any
			if err := db.Raw(query).Scan(&found).Error; err != nil {
				return err
			}
			took = time.Since(started)
		}
		return db.Raw("SELECT SUM(VARIABLE_VALUE) FROM performance_schema.session_status" +
			" WHERE VARIABLE_NAME LIKE 'Handler_read%' AND VARIABLE_NAME <> 'Handler_read_rnd_next'").Row().Scan(&read)
	}), query)
	return fmt.Sprintf("| %s | %s | %s | %d | %.1f |\n", strings.SplitN(about, " (", 2)[0], cost, rows, read, float64(took.Microseconds())/1000)
}

// fillBooks writes claims and what belongs to them, as rows that flushes would have made.
func fillBooks(t *testing.T, db *gorm.DB, claims int) {
	t.Helper()
	const campaigns, chunk = 1000, 100_000
	for i := range campaigns {
		id := fmt.Sprintf("c%04d", i)
		if i == 0 {
			id = "spring"
		}
		syncertest.AddCampaign(t, db, id, int64(claims))
	}
	require.NoError(t, db.Exec("CREATE TABLE numbers (n INT PRIMARY KEY)").Error)
	require.NoError(t, db.Connection(func(db *gorm.DB) error {
		if err := db.Exec("SET SESSION cte_max_recursion_depth = 1000000").Error; err != nil {
			return err
		}
		return db.Exec("INSERT INTO numbers WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < ?) SELECT n FROM r", chunk-1).Error
	}))
	for from := 0; from < claims; from += chunk {
		args := map[string]any{"from": from, "to": claims}
		require.NoError(t, db.Exec("INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch, claimed_at, synced_at)"+
			" SELECT CONCAT(LPAD(HEX(0x01990000 + @from + n), 8, '0'), '-0000-7000-8000-', LPAD(HEX(@from + n), 12, '0')),"+
			" IF((@from + n) % 10 = 6, 'spring', CONCAT('c', LPAD(1 + (@from + n) % 999, 4, '0'))), 0, 1 + @from + n,"+
			" CONCAT('u-', (@from + n) % 1000000), 1, 'claimed', LEFT(SHA2(@from + n, 256), 32), 1,"+
			" TIMESTAMPADD(SECOND, @from + n, '2026-01-01'), TIMESTAMPADD(SECOND, @from + n, '2026-01-01')"+
			" FROM numbers WHERE @from + n < @to", named(args)...).Error)
		require.NoError(t, db.Exec("INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, first_claimed_ms, took_ms, flushed_at)"+
			" SELECT CONCAT(LPAD(HEX(0x01990000 + @from + n), 8, '0'), '-0000-7000-9000-', LPAD(HEX(@from + n), 12, '0')), 'spring', 10, 10,"+
			" 1, 10, 0, 5, NOW(3) FROM numbers WHERE n % 10 = 0 AND @from + n < @to", named(args)...).Error)
	}
	require.NoError(t, db.Exec("ANALYZE TABLE claims, stock_flushes, campaigns").Error)
}

func named(args map[string]any) (all []any) {
	for name, value := range args {
		all = append(all, sql.Named(name, value))
	}
	return all
}
