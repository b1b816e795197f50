package syncertest

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Partitions is the number of claim streams of OpenScripts.
const Partitions = 3

// servers maps tests to the Redis of OpenRedis.
//
//nolint:gochecknoglobals // a test asks more than once
var servers sync.Map

// OpenRedis returns the test's own Redis, the same at each call:
// a load waits until MySQL has the whole claim stream.
func OpenRedis(t testing.TB) *redis.Client {
	t.Helper()
	server, isThere := servers.Load(t)
	if !isThere {
		server = testenv.Redis(t)
		servers.Store(t, server)
		t.Cleanup(func() { servers.Delete(t) })
	}
	return server.(*testenv.RedisServer).Client() //nolint:forcetypeassert // see above
}

// OpenScripts returns scripts on OpenRedis, with Partitions claim streams.
func OpenScripts(t testing.TB) *lua.Scripts {
	t.Helper()
	return ScriptsOn(t, OpenRedis(t), Partitions)
}

// NewCampaigns makes a repository that logs nothing.
func NewCampaigns(t testing.TB, db *gorm.DB, scripts *lua.Scripts) *campaigns.Repository {
	t.Helper()
	return campaigns.New(db, scripts, Quiet())
}

// ScriptsOn returns scripts on the test's own Redis.
func ScriptsOn(t testing.TB, rdb redis.UniversalClient, partitions int) *lua.Scripts {
	t.Helper()
	scripts, err := lua.New(rdb, lua.Options{Partitions: partitions})
	require.NoError(t, err)
	return scripts
}

// Live makes a campaign in MySQL and Redis.
func Live(t *testing.T, db *gorm.DB, total int64) (*campaigns.Repository, *lua.Scripts, string) {
	t.Helper()
	scripts := OpenScripts(t)
	id := testenv.UniqueID(t, "c")
	campaigns := NewCampaigns(t, db, scripts)
	_, _, err := campaigns.Create(t.Context(), CampaignOf(id, total))
	require.NoError(t, err)
	_, err = NewLoader(t, db, scripts).Load(t.Context(), id)
	require.NoError(t, err)
	SyncOpen(t, db)
	return campaigns, scripts, id
}

// SyncOpen applies OpenRedis's streams up to their ends.
func SyncOpen(t *testing.T, db *gorm.DB) {
	t.Helper()
	SyncStreams(t, db, OpenRedis(t), OpenScripts(t), StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond}))
}

// Stored makes a campaign in MySQL, never loaded.
func Stored(t *testing.T, db *gorm.DB, scripts *lua.Scripts, total int64) string {
	t.Helper()
	id := testenv.UniqueID(t, "c")
	_, created, err := NewCampaigns(t, db, scripts).Create(t.Context(), CampaignOf(id, total))
	require.NoError(t, err)
	require.True(t, created)
	return id
}

// Claim claims one unit and returns the outcome.
func Claim(t *testing.T, scripts *lua.Scripts, id string) models.Outcome {
	t.Helper()
	c := CampaignOf(id, 0)
	meta, err := scripts.MetaOf(&c)
	require.NoError(t, err)
	replies, _, err := scripts.Claim(t.Context(), meta, []lua.ClaimRequest{{ID: uuid.Must(uuid.NewV7()), UserID: "u", Quantity: 1}})
	require.NoError(t, err)
	return replies[0].Outcome
}

// settle is how long a loader waits for reports; tests make them before.
const settle = 10 * time.Millisecond

// NewLoader makes a loader that logs nothing.
func NewLoader(t testing.TB, db *gorm.DB, scripts *lua.Scripts) *lots.Loader {
	t.Helper()
	return lots.New(db, scripts, Quiet(), settle, nil)
}

// NewMaintainer makes a maintainer with its own loader. It
// evicts lots idle for the given time and restores none.
func NewMaintainer(t testing.TB, db *gorm.DB, scripts *lua.Scripts, idle time.Duration) *lots.Keeper {
	t.Helper()
	return lots.NewKeeper(NewLoader(t, db, scripts), idle, nil)
}

// ApplyOutbox applies all unapplied rows of the outbox, of any age.
func ApplyOutbox(t testing.TB, db *gorm.DB, relay *resolve.Relay) {
	t.Helper()
	var rows []stored.OutboxRow
	require.NoError(t, db.Order("id").Find(&rows).Error)
	_, err := relay.Deliver(t.Context(), rows)
	require.NoError(t, err)
}

// Unapplied counts the outbox rows not yet applied to Redis.
func Unapplied(t testing.TB, db *gorm.DB) (n int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM outbox").Scan(&n).Error)
	return n
}

// NewRegistry makes a registry of consumer groups in its own database.
func NewRegistry(t testing.TB, scripts *lua.Scripts, groups ...string) *retention.Registry {
	t.Helper()
	db := OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	return retention.NewRegistry(db, scripts, groups)
}

// Trimming configures a trimmer whose entries do not expire.
// Entries acknowledged by group syncer are applied.
func Trimming(t testing.TB, rdb redis.UniversalClient, partitions int, groups ...string) retention.TrimmerConfig {
	t.Helper()
	scripts := ScriptsOn(t, rdb, partitions)
	return retention.TrimmerConfig{
		Streams: scripts, Registry: NewRegistry(t, scripts, groups...), KeepBytes: 1 << 30, Logger: Quiet(),
		Applied: func(ctx context.Context, partition int) (lua.EntryID, error) {
			unread, err := scripts.Unread(ctx, partition, models.GroupSyncer)
			if unread.Pending > 0 {
				return lua.EntryID{Ms: unread.Oldest.Ms - 1}, err
			}
			return unread.Delivered, err
		},
	}
}

// NewTrimmer makes a trimmer of one claim stream, with its own registry.
func NewTrimmer(t *testing.T, rdb redis.UniversalClient, groups ...string) *retention.Trimmer {
	t.Helper()
	return retention.NewTrimmer(Trimming(t, rdb, 1, groups...))
}

// RawInsert times the upper bound: rows only, 1,000 a transaction.
func RawInsert(b *testing.B, db *gorm.DB, events []event.Event) time.Duration {
	b.Helper()
	pool, err := db.DB()
	require.NoError(b, err)
	started := time.Now()
	for len(events) > 0 {
		n := min(1000, len(events))
		InTx(b, pool, func(ctx context.Context, tx *sql.Tx) error { return InsertRows(ctx, tx, events[:n]) })
		events = events[n:]
	}
	return time.Since(started)
}

// InTx runs do in a transaction.
func InTx(b *testing.B, pool *sql.DB, do func(ctx context.Context, tx *sql.Tx) error) {
	tx, err := pool.BeginTx(b.Context(), nil)
	if err == nil {
		err = do(b.Context(), tx)
		if err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		b.Error(err)
	}
}

// InsertRows inserts the rows of claims in one statement.
func InsertRows(ctx context.Context, tx *sql.Tx, events []event.Event) error {
	const row = "(?,?,0,?,?,?,'claimed','',1,?,?)"
	now := time.Now().UTC()
	args := make([]any, 0, 7*len(events))
	for i := range events {
		e := &events[i]
		args = append(args, e.ID, e.CampaignID, e.Seq, e.UserID, e.Quantity, e.At.Time, now)
	}
	//nolint:gosec // question marks only
	_, err := tx.ExecContext(ctx, "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch,"+
		" claimed_at, synced_at) VALUES "+row+strings.Repeat(","+row, len(events)-1), args...)
	return err
}
