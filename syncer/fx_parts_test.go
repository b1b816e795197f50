package syncer_test

import (
	"bytes"
	"context"
	"database/sql"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// openScripts are Dibs' scripts on the Redis that all tests share; campaign ids must be unique.
// partitions is the number of claim streams that openScripts works with.
const partitions = 3

func openScripts(t testing.TB) *lua.Scripts {
	t.Helper()
	scripts, err := lua.New(testenv.SharedRedis(t).Client(), lua.Options{Partitions: partitions})
	require.NoError(t, err)
	return scripts
}

func newCampaigns(t testing.TB, db *gorm.DB, scripts syncer.Scripts) *syncer.Campaigns {
	t.Helper()
	return syncer.NewCampaigns(db, scripts, quiet())
}

// live is a campaign in MySQL and in Redis.
func live(t *testing.T, db *gorm.DB, total int64) (*syncer.Campaigns, *lua.Scripts, string) {
	t.Helper()
	scripts, id := openScripts(t), testenv.UniqueID(t, "c")
	campaigns := newCampaigns(t, db, scripts)
	_, _, err := campaigns.Create(t.Context(), campaignOf(id, total))
	require.NoError(t, err)
	_, err = newHydrator(t, db, scripts).Hydrate(t.Context(), id)
	require.NoError(t, err)
	return campaigns, scripts, id
}

// stored is a campaign that is in MySQL and was never loaded.
func stored(t *testing.T, db *gorm.DB, scripts syncer.Scripts, total int64) string {
	t.Helper()
	id := testenv.UniqueID(t, "c")
	_, created, err := newCampaigns(t, db, scripts).Create(t.Context(), campaignOf(id, total))
	require.NoError(t, err)
	require.True(t, created)
	return id
}

// claim takes one unit and returns what became of it.
func claim(t *testing.T, scripts *lua.Scripts, id string) models.Outcome {
	t.Helper()
	c := campaignOf(id, 0)
	meta, err := scripts.MetaOf(&c)
	require.NoError(t, err)
	replies, _, err := scripts.Claim(t.Context(), meta, []lua.ClaimRequest{{ID: uuid.Must(uuid.NewV7()), UserID: "u", Quantity: 1}})
	require.NoError(t, err)
	return replies[0].Outcome
}

func newHydrator(t testing.TB, db *gorm.DB, scripts syncer.Scripts) *syncer.Hydrator {
	t.Helper()
	h, err := syncer.NewHydrator(syncer.HydratorConfig{DB: db, Scripts: scripts, Logger: quiet()})
	require.NoError(t, err)
	return h
}

func newEvictor(t testing.TB, db *gorm.DB, scripts syncer.Scripts, idle time.Duration) *syncer.Evictor {
	t.Helper()
	e, err := syncer.NewEvictor(syncer.EvictorConfig{
		DB: db, Scripts: scripts, Hydrator: newHydrator(t, db, scripts), Idle: idle, Logger: quiet(),
	})
	require.NoError(t, err)
	return e
}

func newSweeper(t testing.TB, db *gorm.DB, scripts syncer.Scripts) *syncer.Sweeper {
	t.Helper()
	return syncer.NewSweeper(db, newHydrator(t, db, scripts), nil)
}

func newRelay(t testing.TB, cfg syncer.RelayConfig) *syncer.Relay {
	t.Helper()
	cfg.Logger = quiet()
	if cfg.After == 0 {
		cfg.After = time.Nanosecond
	}
	r, err := syncer.NewRelay(cfg)
	require.NoError(t, err)
	return r
}

func unapplied(t testing.TB, db *gorm.DB) (n int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM outbox WHERE applied_at IS NULL").Scan(&n).Error)
	return n
}

func newTrimmer(t *testing.T, cfg syncer.TrimmerConfig) *syncer.Trimmer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	trimmer, err := syncer.NewTrimmer(cfg)
	require.NoError(t, err)
	return trimmer
}

// logBuffer is a log that a test reads.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// rawInsert is the ceiling: nothing but the rows, 1,000 a transaction.
func rawInsert(b *testing.B, db *gorm.DB, events []models.Event) time.Duration {
	b.Helper()
	pool, err := db.DB()
	require.NoError(b, err)
	begun := time.Now()
	for len(events) > 0 {
		n := min(1000, len(events))
		inTx(b, pool, func(ctx context.Context, tx *sql.Tx) error { return insertRows(ctx, tx, events[:n]) })
		events = events[n:]
	}
	return time.Since(begun)
}

func inTx(b *testing.B, pool *sql.DB, do func(ctx context.Context, tx *sql.Tx) error) {
	tx, err := pool.BeginTx(b.Context(), nil)
	if err == nil {
		if err = do(b.Context(), tx); err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		b.Error(err)
	}
}

func insertRows(ctx context.Context, tx *sql.Tx, events []models.Event) error {
	const row = "(?,?,0,?,?,?,'claimed','',1,?,?)"
	now := time.Now().UTC()
	args := make([]any, 0, 7*len(events))
	for i := range events {
		e := &events[i]
		args = append(args, e.ID, e.CampaignID, e.Seq, e.UserID, e.Quantity, e.At.Time, now)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch,"+
		" claimed_at, synced_at) VALUES "+row+strings.Repeat(","+row, len(events)-1), args...)
	return err
}
