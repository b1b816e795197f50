package retention_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"dibs/finance"
	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

var (
	sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")
	comment  = regexp.MustCompile(`(?m)^--.*$`)
)

func dbaDocs(t *testing.T) (blocks [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/dba.md")
	require.NoError(t, err)
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		var statements []string
		for one := range strings.SplitSeq(comment.ReplaceAllString(block[1], ""), ";") {
			if one = strings.TrimSpace(one); one != "" {
				statements = append(statements, one)
			}
		}
		blocks = append(blocks, statements)
	}
	return blocks
}

// dbaPlans are the tables that each query for a DBA reads, with the
// type of the access and the index. Derived tables are left out.
var dbaPlans = [][]string{
	{"d const PRIMARY", "f ref stock_flushes_of_campaign", "f ref stock_flushes_of_campaign", "f ref stock_flushes_waiting", "l const lots_id", "x ref reconciliations_of_campaign"},
	{"d ref definitions_to_end", "l eq_ref PRIMARY"},
	{"stock_flushes index PRIMARY"},
	{"stock_flushes index PRIMARY"},
	{"stock_flushes range stock_flushes_of_campaign"},
	{"reconciliations index PRIMARY"},
	{"parked_events ALL "}, // is empty or short
	{"outbox ALL "},        // has what Redis has not got yet
	{"hold_cursors range hold_cursors_due"},
	{"claims ref claims_of_user"},
	{"claims ref claims_place"},
	{"audit_log index PRIMARY"},
}

func TestDocs_EachQueryOfADBAReadsLittle(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	const many = 4000
	all := make([]models.Campaign, many/2)
	for i := range all {
		all[i] = syncertest.CampaignOf(fmt.Sprint("c", i), 10)
		all[i].Status = models.StatusClosed
	}
	all[0].ID, all[1].Status = "spring", models.StatusOpen
	syncertest.AddCampaigns(t, db, all...)
	claims, flushes := make([]stored.ClaimRow, many), make([]stored.StockFlush, many)
	for i := range claims {
		id := all[i%4].ID
		claims[i] = stored.ClaimRow{
			ID: uuid.NewString(), CampaignID: id, Seq: int64(1 + i/4), UserID: fmt.Sprint("u-", i%500), Quantity: 1, Status: models.ClaimClaimed,
			ClaimedAt: time.Now(), SyncedAt: time.Now(),
		}
		flushes[i] = stored.StockFlush{ID: idAt(time.Now()), CampaignID: id, FlushedAt: time.Now().Add(time.Duration(i-many) * time.Minute)}
	}
	require.NoError(t, db.CreateInBatches(claims, 1000).Error)
	require.NoError(t, db.CreateInBatches(flushes, 1000).Error)
	cursors := make([]stored.HoldCursor, many/2)
	for i := range cursors {
		cursors[i] = stored.HoldCursor{CampaignID: all[i].ID, DueMs: new(time.Now().Add(time.Hour).UnixMilli())}
	}
	require.NoError(t, db.CreateInBatches(cursors, 1000).Error)
	queries := dbaDocs(t)[0]
	require.Len(t, queries, len(dbaPlans))
	tables := []string{"definitions", "lots", "claims", "stock_flushes", "hold_cursors", "reconciliations", "outbox", "parked_events"}
	for i, query := range queries {
		var plan []string
		var rows []map[string]any
		require.NoError(t, db.Raw(query).Scan(&rows).Error, query)
		for _, step := range syncertest.Explain(t, db, tables, query) {
			// r is the newest comparison, and there is none
			if !strings.HasPrefix(step.Table, "<") && step.Table != "r" {
				plan = append(plan, step.Table+" "+step.Type+" "+step.Key)
			}
			if step.Type != "index" || step.Key != "PRIMARY" { // in order of ids, up to the LIMIT
				require.LessOrEqual(t, step.Rows, int64(many/2), query)
			}
		}
		tables = nil // once is enough
		slices.Sort(plan)
		require.Equal(t, dbaPlans[i], plan, query)
	}
}

func TestDocs_QueriesOfADBAKnowNoTimeZone(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	spring := syncertest.CampaignOf("spring", 10)
	spring.Status = models.StatusOpen
	syncertest.AddCampaigns(t, db, spring)
	now := time.Now().UTC().Truncate(time.Minute).Add(-time.Minute)
	require.NoError(t, db.Create(&stored.StockFlush{
		ID: idAt(now), CampaignID: "spring", Claims: 7, Units: 8, FlushedAt: now, FirstClaimedMs: now.UnixMilli() - 57,
	}).Error)
	require.NoError(t, db.Create(&stored.HoldCursor{CampaignID: "spring", DueMs: new(now.UnixMilli())}).Error)
	said := make(map[string]string)
	for _, zone := range []string{"+00:00", "+02:00", "-05:00"} {
		require.NoError(t, db.Connection(func(tx *gorm.DB) error {
			require.NoError(t, tx.Exec("SET time_zone = ?", zone).Error)
			for _, query := range dbaDocs(t)[0] {
				var rows []map[string]any
				require.NoError(t, tx.Raw(query).Scan(&rows).Error, query)
				for i := range rows {
					delete(rows[i], "late_ms") // grows
					delete(rows[i], "last_flush_age_seconds")
				}
				text := fmt.Sprint(rows)
				if zone == "+00:00" {
					said[query] = text
				}
				require.Equal(t, said[query], text, "%s: %s", zone, query)
			}
			return tx.Exec("SET time_zone = '+00:00'").Error
		}))
	}
	for query, text := range said {
		switch {
		case strings.Contains(query, "behind_ms"):
			require.Contains(t, text, "behind_ms:57")
		case strings.Contains(query, "late_ms"), strings.Contains(query, "INTERVAL 1 HOUR"):
			require.NotEqual(t, "[]", text, query)
		}
	}
}

func TestDocs_TheGrantsAreEnough(t *testing.T) {
	t.Parallel()
	own := testenv.Database(t)
	// with the tables that grants name
	root := syncertest.OpenStore(t, sqlstore.Config{DSN: own.DSN})
	suffix := uuid.NewString()[:8]
	var grants []string
	for _, of := range migrations.Accounts() {
		for _, grant := range migrations.Grants(of, "dibs", "dibs_"+string(of), "%") {
			grants = append(grants, strings.TrimSuffix(grant, ";"))
		}
	}
	accounts := map[string]string{}
	for _, grant := range grants {
		name := regexp.MustCompile(`'(\w+)'@'%'`).FindStringSubmatch(grant)[1]
		if accounts[name] == "" {
			accounts[name] = name + suffix
			require.NoError(t, root.Exec(fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'Secret-1234'", accounts[name])).Error)
			t.Cleanup(func() { require.NoError(t, root.Exec(fmt.Sprintf("DROP USER '%s'@'%%'", accounts[name])).Error) })
		}
		grant = strings.Replace(grant, "'"+name+"'", "'"+accounts[name]+"'", 1)
		require.NoError(t, root.Exec(strings.Replace(grant, "dibs.", "`"+own.Name+"`.", 1)).Error, grant)
	}
	require.Len(t, accounts, 4)
	as := func(name string) *gorm.DB {
		cfg, err := mysql.ParseDSN(own.DSN)
		require.NoError(t, err)
		cfg.User, cfg.Passwd, cfg.AllowNativePasswords = accounts[name], "Secret-1234", true
		db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: cfg.FormatDSN(), Logger: syncertest.Quiet()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
		return db
	}

	require.NoError(t, root.Exec("DROP TABLE audit_log, claims_archive, goose_db_version").Error)
	pool, err := as("dibs_migrate").DB()
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), pool, migrations.MySQL)
	require.NoError(t, err)

	// cmd tries what the roles need
	books, err := finance.NewBooks(finance.Config{DB: as("dibs_finance"), Logger: syncertest.Quiet()})
	require.NoError(t, err)
	defer func() { require.NoError(t, books.Close(t.Context())) }()
	amount := int64(5)
	require.NoError(t, books.Handle(t.Context(), event.Event{
		Type: event.ClaimAccepted, ID: "one", CampaignID: "rain", UserID: "u", Seq: 1, PacketID: "p", Amount: &amount, At: models.NewTime(time.Now()),
	}, nil))
	require.Error(t, as("dibs_finance").Exec("SELECT * FROM claims").Error)

	reader := as("dibs_reader")
	require.NoError(t, reader.Exec("SELECT * FROM stock_watch").Error)
	require.Error(t, reader.Exec("DELETE FROM claims").Error)
}
