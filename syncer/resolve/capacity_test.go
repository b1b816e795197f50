package resolve_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// cost is what a SQL server had to do.
type cost struct{ statements, binlog, redo, commits float64 }

// costOf reads the figures of a server that no one else uses.
func costOf(t *testing.T, db *gorm.DB) (c cost) {
	t.Helper()
	status := func(name string) float64 {
		var key string
		var n float64
		require.NoError(t, db.Raw("SHOW GLOBAL STATUS LIKE '"+name+"'").Row().Scan(&key, &n))
		return n
	}
	c.statements = status("Com_select") + status("Com_insert") + status("Com_insert_select") + status("Com_update") + status("Com_update_multi") + status("Com_delete")
	c.commits = status("Binlog_cache_use") // transactions that wrote
	c.redo = status("Innodb_os_log_written")
	for _, log := range syncertest.Rows(t, db, "SHOW BINARY LOGS") {
		n, err := strconv.ParseFloat(log["File_size"], 64)
		require.NoError(t, err)
		c.binlog += n
	}
	return c
}

// TestCapacity makes the tables of docs/capacity.md, on the server of DIBS_TEST_MYSQL_DSN that has a binary log and nothing else to do:
//
//	DIBS_TEST_CAPACITY=1 DIBS_TEST_MYSQL_DSN='root@tcp(127.0.0.1:3306)/' go test ./syncer/resolve -run Capacity -v
//
//nolint:paralleltest // it reads figures of the whole server
func TestCapacity(t *testing.T) {
	if os.Getenv("DIBS_TEST_CAPACITY") == "" {
		t.Skip("makes figures, and wants a server of its own")
	}
	for _, image := range []string{"FULL", "MINIMAL"} {
		own := testenv.Database(t)
		root := syncertest.OpenStore(t, sqlstore.Config{DSN: own.DSN})
		require.NoError(t, root.Exec("SET GLOBAL binlog_row_image = '"+image+"'").Error)
		capacity(t, syncertest.OpenStore(t, sqlstore.Config{DSN: own.DSN}), image) // sessions of now have the image
	}
}

func capacity(t *testing.T, db *gorm.DB, image string) {
	t.Helper()
	h, ms := clocked(t, db)
	const hot, spread, few = 20_000, 20_000, 500
	hotID := h.Create(10*hot, hold(time.Minute))
	var spreadIDs []string
	for range 500 {
		spreadIDs = append(spreadIDs, syncertest.CampaignOf(testenv.UniqueID(t, "s"), spread).ID)
		syncertest.AddCampaign(t, db, spreadIDs[len(spreadIDs)-1], spread)
	}
	var table strings.Builder
	measure := func(what string, n int, do func()) {
		before := costOf(t, db)
		do()
		after := costOf(t, db)
		per := func(a, b float64) float64 { return (b - a) / float64(n) }
		fmt.Fprintf(&table, "| %s | %.3f | %.3f | %.0f | %.0f |\n", what, per(before.statements, after.statements), per(before.commits, after.commits),
			per(before.binlog, after.binlog), per(before.redo, after.redo))
	}
	flush := func(events []models.Event) {
		w, err := writer.New(writer.Config{DB: db, Logger: syncertest.Quiet()})
		require.NoError(t, err)
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
		require.NoError(t, w.Close(t.Context()))
	}
	for i := range hot / 1000 {
		require.Len(t, h.Claim(hotID, syncertest.Asks(fmt.Sprint("u", i), 1000)...), 1000)
	}
	taken := unsynced(h)
	measure("claim, one campaign", hot, func() { flush(taken) })
	var events []models.Event
	for seq := range int64(spread / 500) {
		for _, id := range spreadIDs {
			events = append(events, syncertest.ClaimsOf(id, 1+seq, 1)...)
		}
	}
	measure("claim, 500 campaigns", spread, func() { flush(events) })
	relay := resolve.NewRelay(db, h.Scripts, nil)
	r := resolve.NewResolver(db, relay, syncertest.Quiet())
	measure("redeem", few, func() {
		for i := range few {
			_, err := r.Redeem(t.Context(), taken[i].ID, "order-4711")
			require.NoError(t, err)
		}
	})
	measure("release", few, func() {
		for i := range few {
			_, err := r.Release(t.Context(), taken[few+i].ID, "")
			require.NoError(t, err)
		}
	})
	ms.Add(time.Minute.Milliseconds())
	measure("expiry, one campaign", hot-2*few, func() { require.Equal(t, hot-2*few, expire(h, expirer(h, resolve.ExpireBatch))) })
	ids := manyHolds(t, h, ms, 300, 1)
	measure("expiry, 300 campaigns", len(ids), func() { require.Equal(t, 300, expire(h, expirer(h, resolve.ExpireBatch))) })
	idle := resolve.NewFinalizer(relay, h.Loader(), nil, nil)
	measure("a second of 800 idle campaigns: expire, relay, finalize", 1, func() {
		expire(h, expirer(h, resolve.ExpireBatch))
		for range 4 {
			_, err := relay.Relay(t.Context())
			require.NoError(t, err)
		}
		_, err := idle.Finalize(t.Context())
		require.NoError(t, err)
	})
	var version string
	var bytes, rows float64
	require.NoError(t, db.Exec("ANALYZE TABLE claims").Error)
	require.NoError(t, db.Raw("SELECT VERSION()").Scan(&version).Error)
	require.NoError(t, db.Raw("SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE()"+
		" AND table_name = 'claims'").Scan(&bytes).Error)
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM claims").Scan(&rows).Error)
	t.Logf("%s, binlog_row_image=%s, disk of a claim with its keys: %.0f bytes\n\n"+
		"| what | statements | transactions | binary log, bytes | redo, bytes |\n|---|---|---|---|---|\n%s", version, image, bytes/rows, table.String())
}

// manyHolds makes campaigns that Redis holds and each of which has so many claims.
func manyHolds(t testing.TB, h *syncertest.Stack, ms *atomic.Int64, held, claims int) (ids []string) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	ids = make([]string, held)
	repository := campaigns.New(h.DB, h.Scripts, syncertest.Quiet())
	loader := h.Loader()
	metas := make([]lua.Meta, held)
	for i := range ids {
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), int64(claims))
		c.HoldForMs = time.Minute.Milliseconds()
		ids[i] = c.ID
		g.Go(func() error {
			_, _, err := repository.Create(t.Context(), c)
			return err
		})
	}
	require.NoError(t, g.Wait())
	h.Sync()
	for i, id := range ids {
		var err error
		metas[i], err = loader.Load(t.Context(), id)
		require.NoError(t, err)
		h.Sync()
	}
	for _, meta := range metas {
		_, _, err := h.Scripts.Claim(t.Context(), meta, syncertest.Asks("u", claims))
		require.NoError(t, err)
	}
	w, err := writer.New(writer.Config{DB: h.DB, Logger: syncertest.Quiet()})
	require.NoError(t, err)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, unsynced(h)))
	require.NoError(t, w.Close(t.Context()))
	ms.Add(time.Minute.Milliseconds())
	return ids
}
