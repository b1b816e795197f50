package syncertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/tables"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// OnEachStore runs a test on the SQL server and on the embedded SQLite.
func OnEachStore(t *testing.T, test func(t *testing.T, db *gorm.DB)) {
	t.Helper()
	OnEachStoreNamed(t, func(t *testing.T, db *gorm.DB, _ string) { test(t, db) })
}

// OnEachStoreNamed is OnEachStore with the DSN or path.
func OnEachStoreNamed(t *testing.T, test func(t *testing.T, db *gorm.DB, store string)) {
	t.Helper()
	testenv.OnEachStore(t, func(t *testing.T, store testenv.Store) {
		test(t, OpenStore(t, sqlstore.Config{DSN: store.DSN, Path: store.Path}), store.String())
	})
}

// OpenServer opens a new database with the latest schema on the SQL server.
func OpenServer(t testing.TB) *gorm.DB {
	t.Helper()
	return OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN})
}

// OpenStore opens a database, with the latest schema if it is new.
func OpenStore(t testing.TB, cfg sqlstore.Config) *gorm.DB {
	t.Helper()
	cfg.Logger = Quiet()
	if _, err := os.Stat(cfg.Path); cfg.Path != "" && err != nil {
		empty, err := emptySQLite()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(cfg.Path, empty, 0o600))
	}
	db, err := sqlstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	if cfg.Path == "" && !db.Migrator().HasTable("definitions") {
		Migrate(t, db)
	}
	return db
}

// emptySQLite is a database file with the latest schema.
// Migrating takes a second under the race detector.
var emptySQLite = sync.OnceValues(func() (file []byte, err error) {
	folder, err := os.MkdirTemp("", "dibs-empty-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "dibs.db")
	ctx := context.Background()
	db, err := sqlstore.Open(ctx, sqlstore.Config{Path: path, Logger: Quiet()})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err == nil {
		_, err = migrations.Up(ctx, pool, db.Name())
	}
	err = errors.Join(err, sqlstore.Close(db))
	if err != nil { // closing writes the log into the file
		return nil, err
	}
	return os.ReadFile(path) //nolint:gosec // what was just written
})

// Quiet discards logs.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// AddCampaign inserts a campaign without the repository.
func AddCampaign(t testing.TB, db *gorm.DB, id string, total int64) {
	t.Helper()
	c := CampaignOf(id, total)
	c.Version = 1
	c.Remaining = total
	AddCampaigns(t, db, c)
}

// AddCampaigns stores new campaigns.
func AddCampaigns(t testing.TB, db *gorm.DB, all ...models.Campaign) {
	t.Helper()
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		for i := range all {
			definition := models.DefinitionOf(&all[i], "")
			if _, err := tables.Define(tx, &definition, 1); err != nil {
				return err
			}
		}
		return nil
	}))
}

// CampaignOf returns an open coupon campaign without limits.
func CampaignOf(id string, total int64) models.Campaign {
	return models.Campaign{ID: id, Kind: models.KindCoupon, Status: models.StatusOpen, Total: total, TimeZone: "UTC"}
}

// ClaimsOf makes n claims of a campaign, with seq from first and
// 1 to 3 units each.
func ClaimsOf(campaignID string, first, n int64) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		seq := first + int64(i)
		events[i] = event.Event{
			V: event.Version, Type: event.ClaimAccepted, ID: uuid.Must(uuid.NewV7()).String(), CampaignID: campaignID,
			UserID: fmt.Sprintf("user-%d", seq), Quantity: 1 + seq%3, Epoch: 1, Seq: seq, At: models.NewTime(time.Now()),
		}
	}
	return events
}

// Submit writes an event that is in no stream.
func Submit(ctx context.Context, w *writer.Writer, e event.Event) error {
	return w.WriteEvents(ctx, e)
}

// SubmitAll writes events that are in no stream.
func SubmitAll(ctx context.Context, w *writer.Writer, events []event.Event) error {
	for some := range slices.Chunk(events, 5000) {
		if err := w.WriteEvents(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// Books are a campaign's figures from the tables.
type Books struct {
	Total, Remaining, Claimed, SyncedSeq int64 // campaigns
	Rows, Units                          int64 // claims
	Flushes, FlushedUnits, FlushedClaims int64 // stock_flushes
}

// BooksOf reads a campaign's figures from the tables.
func BooksOf(t require.TestingT, db *gorm.DB, id string) Books {
	var b Books
	row := db.Raw("SELECT c.total, c.remaining, c.claimed, c.synced_seq, l.n, l.units, f.n, f.units, f.claims FROM campaigns c,"+
		" (SELECT COUNT(*) AS n, COALESCE(SUM(quantity), 0) AS units FROM claims WHERE campaign_id = ?) l,"+
		" (SELECT COUNT(*) AS n, COALESCE(SUM(units), 0) AS units, COALESCE(SUM(claims), 0) AS claims FROM stock_flushes"+
		" WHERE campaign_id = ?) f WHERE c.id = ?", id, id, id).Row()
	err := row.Scan(&b.Total, &b.Remaining, &b.Claimed, &b.SyncedSeq, &b.Rows, &b.Units, &b.Flushes, &b.FlushedUnits, &b.FlushedClaims)
	require.NoError(t, err)
	return b
}

// Wrong describes how the figures contradict the given claims;
// "" if they don't.
func (b Books) Wrong(events []event.Event) string {
	var units int64
	for _, e := range events {
		units += e.Quantity
	}
	n := int64(len(events))
	want := Books{
		Total: b.Total, Remaining: max(0, b.Total-units), Claimed: units, SyncedSeq: n, Rows: n, Units: units,
		Flushes: b.Flushes, FlushedUnits: units, FlushedClaims: n,
	}
	if b == want {
		return ""
	}
	return fmt.Sprintf("want %+v, have %+v", want, b)
}

// RequireBooks checks that the tables hold exactly these claims.
func RequireBooks(t testing.TB, db *gorm.DB, id string, events []event.Event) {
	t.Helper()
	require.Empty(t, BooksOf(t, db, id).Wrong(events))
}

// ParkedIDs returns the ids of all parked events, in order.
func ParkedIDs(t require.TestingT, db *gorm.DB) []string {
	var ids []string
	require.NoError(t, db.Raw("SELECT id FROM parked_events ORDER BY id").Scan(&ids).Error)
	return ids
}

// partitionsMax is the most claim streams of a test.
const partitionsMax = 8

// StartWriter starts a writer and closes it when the test ends.
func StartWriter(t testing.TB, cfg writer.Config) *writer.Writer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = Quiet()
	}
	cfg.Partitions = cmp.Or(cfg.Partitions, partitionsMax)
	w, err := writer.New(cfg)
	require.NoError(t, err)
	CloseAfter(t, w)
	return w
}

// CloseAfter closes a writer when the test ends.
func CloseAfter(t testing.TB, w *writer.Writer) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, w.Close(ctx))
	})
}
