package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/writer"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestWriter_ParksBadRowsAndWritesTheirNeighbours(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 10_000)
		reg := prometheus.NewPedanticRegistry()
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 1000, FlushInterval: 50 * time.Millisecond, Registerer: reg})
		events := syncertest.ClaimsOf("c", 1, 300)
		var bad []string
		for i, spoil := range map[int]func(e *event.Event){
			0:   func(e *event.Event) { e.UserID = strings.Repeat("ü", 129) },
			7:   func(e *event.Event) { e.Quantity = -1 },
			150: func(e *event.Event) { e.Seq = 0 },
			151: func(e *event.Event) { e.Key = strings.Repeat("k", 65) },
			299: func(e *event.Event) { e.PacketID = strings.Repeat("p", 65) },
		} {
			spoil(&events[i])
			bad = append(bad, events[i].ID)
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
		slices.Sort(bad)
		require.Equal(t, bad, syncertest.ParkedIDs(t, db))
		good := slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return slices.Contains(bad, e.ID) })
		syncertest.RequireBooks(t, db, "c", good)

		var parked stored.ParkedEvent
		require.NoError(t, db.Where("id = ?", events[7].ID).First(&parked).Error)
		require.Contains(t, string(parked.Payload), events[7].ID)
		require.Equal(t, "c", parked.LotID)
		require.NotEmpty(t, parked.Reason)

		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events), "delivered again")
		require.Equal(t, bad, syncertest.ParkedIDs(t, db))
		syncertest.RequireBooks(t, db, "c", good)
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP dibs_claims_written_total Claims put into MySQL.
# TYPE dibs_claims_written_total counter
dibs_claims_written_total %d
`, len(good))), "dibs_claims_written_total"))

		e := syncertest.ClaimsOf(strings.Repeat("ü\xff", 500), 1, 1)[0]
		e.ID = strings.Repeat("\xff?'", 300) // fits nowhere at all
		require.NoError(t, syncertest.Submit(t.Context(), w, e))
		turn, _, err := w.Begin(t.Context(), 0)
		require.NoError(t, err)
		require.NoError(t, w.Add(&event.Read{
			Turn: turn, Upto: event.Offset{EntryID: "44-0", Read: 44},
			Events: []event.Raw{{Payload: []byte("?"), Unreadable: "no JSON"}},
		}))
		require.Eventually(t, func() bool { return len(syncertest.ParkedIDs(t, db)) == len(bad)+2 }, time.Minute, time.Millisecond)
	})
}

// sqlServer is a server of its own, with the schema and a campaign "c".
func sqlServer(t *testing.T) (*testenv.MySQLServer, *gorm.DB) {
	t.Helper()
	server := testenv.SQLServer(t)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: server.DSN("dibs")})
	syncertest.AddCampaign(t, db, "c", 1_000_000)
	return server, db
}

// pause freezes the server, and returns when it no longer answers.
func pause(t *testing.T, server *testenv.MySQLServer, db *gorm.DB) {
	t.Helper()
	server.Pause()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return db.WithContext(ctx).Exec("SELECT 1").Error != nil
	}, time.Minute, time.Millisecond)
}

// deaf opens a database through connections that end at their next
// reply while isDeaf. The server has done what the client requested.
func deaf(t *testing.T, dsn string) (db *gorm.DB, isDeaf *atomic.Bool) {
	t.Helper()
	isDeaf = &atomic.Bool{}
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	server := cfg.Addr
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		running.Wait()
	})
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).DialContext(context.Background(), "tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			end := func() { _ = errors.Join(near.Close(), far.Close()) }
			running.Go(func() {
				defer end()
				_, _ = io.Copy(far, near)
			})
			running.Go(func() {
				defer end()
				_, _ = io.Copy(deafWriter{near, isDeaf}, far)
			})
		}
	})
	cfg.Addr = listener.Addr().String()
	db, err = sqlstore.Open(t.Context(), sqlstore.Config{DSN: cfg.FormatDSN(), Logger: syncertest.Quiet()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	return db, isDeaf
}

type deafWriter struct {
	to     io.Writer
	isDeaf *atomic.Bool
}

func (w deafWriter) Write(b []byte) (int, error) {
	if w.isDeaf.Load() {
		return 0, io.ErrClosedPipe
	}
	return w.to.Write(b)
}
