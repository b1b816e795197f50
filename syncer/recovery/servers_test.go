package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"
	"dibs/syncer/recovery"
	"dibs/syncer/residency"
	"dibs/syncer/writer"
)

// servers are a Redis and an SQL server with what Dibs does on them.
type servers struct {
	*syncertest.Stack

	ids     []string
	columns map[string]string // that are no generated ones, by table
	past    []saved
	claims  int
}

// saved is what both servers held at a moment.
type saved struct {
	rows map[string][][]any // by table
	keys map[string]string  // as DUMP has them
}

func newServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{Stack: syncertest.NewStack(t), columns: make(map[string]string)}
	s.Writer = syncertest.StartWriter(t, writer.Config{
		DB: s.DB, FlushLog: residency.NewFlushLog(s.Hydrator()), FlushInterval: time.Millisecond,
	})
	for range recovery.LotCount {
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), recovery.Total)
		_, _, err := syncertest.NewCampaigns(t, s.DB, s.Scripts).Create(t.Context(), c)
		require.NoError(t, err)
		s.ids = append(s.ids, c.ID)
	}
	for _, table := range []string{"lots", "claims", "ledger_events", "outbox", "parked_events", "stock_flushes", "streams"} {
		var columns string
		require.NoError(t, s.DB.Raw("SELECT GROUP_CONCAT(CONCAT('`', column_name, '`')) FROM information_schema.columns"+
			" WHERE table_schema = DATABASE() AND table_name = ? AND COALESCE(generation_expression, '') = ''", table).Scan(&columns).Error)
		s.columns[table] = columns
	}
	return s
}

func (s *servers) Claim(lot int, seen lua.Position) (now lua.Position, asks bool) {
	s.claims++
	replies, view := s.ClaimAfter(s.ids[lot], seen, syncertest.Ask(fmt.Sprintf("u-%d", s.claims), ""))
	switch replies[0].Outcome {
	case models.OutcomeClaimed:
		return lua.Position{Epoch: view.Epoch, Seq: view.Seq}, false
	case models.OutcomeSoldOut:
		return now, false
	case models.OutcomeAbsent, models.OutcomeDamaged, models.OutcomeRolledBack:
		return now, true
	}
	require.Fail(s.T, "a claim ends otherwise", replies[0].Outcome)
	return now, true
}

func (s *servers) Book() { s.Sync() }

func (s *servers) Save() {
	ctx := s.T.Context()
	now := saved{rows: make(map[string][][]any), keys: make(map[string]string)}
	for table, columns := range s.columns {
		rows, err := s.DB.ConnPool.QueryContext(ctx, "SELECT "+columns+" FROM "+table)
		require.NoError(s.T, err)
		names, err := rows.Columns()
		require.NoError(s.T, err)
		for rows.Next() {
			row, into := make([]any, len(names)), make([]any, len(names))
			for i := range row {
				into[i] = &row[i]
			}
			require.NoError(s.T, rows.Scan(into...))
			now.rows[table] = append(now.rows[table], row)
		}
		require.NoError(s.T, rows.Err())
		require.NoError(s.T, rows.Close())
	}
	keys, err := s.Redis.Keys(ctx, "*").Result()
	require.NoError(s.T, err)
	for _, key := range keys {
		now.keys[key], err = s.Redis.Dump(ctx, key).Result()
		require.NoError(s.T, err)
	}
	s.past = append(s.past, now)
}

func (s *servers) RestoreMySQL(at int) {
	s.past = s.past[:at+1]
	for table, columns := range s.columns {
		s.Exec("DELETE FROM " + table)
		for _, row := range s.past[at].rows[table] {
			_, err := s.DB.ConnPool.ExecContext(s.T.Context(),
				"INSERT INTO "+table+" ("+columns+") VALUES (?"+strings.Repeat(", ?", len(row)-1)+")", row...)
			require.NoError(s.T, err)
		}
	}
}

func (s *servers) RestoreRedis(at int) {
	s.past = s.past[:at+1]
	s.FlushAll()
	s.Lose(s.ids[0], func(lua.CampaignKeys) []string { return []string{lua.StreamKey(0)} })
	for key, dump := range s.past[at].keys {
		require.NoError(s.T, s.Redis.Restore(s.T.Context(), key, 0, dump).Err())
	}
	s.Group()
}

func (s *servers) FlushAll() {
	require.NoError(s.T, s.Redis.FlushAll(s.T.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	s.Group()
}

func (s *servers) DeleteKey(lot, which int) {
	s.Lose(s.ids[lot], func(k lua.CampaignKeys) []string { return []string{[]string{k.State, k.Users, k.Evicted}[which]} })
}

func (s *servers) Watch() {
	_, err := s.Maintainer().Watch(s.T.Context())
	require.NoError(s.T, err)
}

var errFails = errors.New("the script is not sent")

func (s *servers) Recover(lot int, seen lua.Position, failing string) {
	scripts := s.Scripts
	if failing != "" {
		scripts = syncertest.Hooked(s.T, s.Redis, lua.Options{}, syncertest.Hooks{Before: func(name string) error {
			if strings.TrimPrefix(name, "pipeline ") == failing {
				return errFails
			}
			return nil
		}})
	}
	_, err := syncertest.NewHydrator(s.T, s.DB, scripts).Recover(s.T.Context(), s.ids[lot], seen)
	switch c := s.Campaign(s.ids[lot]); {
	case failing != "":
	case errors.Is(err, campaigns.ErrLost) && strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack):
		_, err = s.Reconciler().Restore(s.T.Context(), s.ids[lot])
		if !errors.Is(err, residency.ErrUnsynced) {
			require.NoError(s.T, err)
		}
	case !errors.Is(err, campaigns.ErrLost):
		require.NoError(s.T, err)
	}
}

func (s *servers) Evict(lot int) {
	m := syncertest.NewMaintainer(s.T, s.DB, s.Scripts, residency.MinIdle)
	require.Eventually(s.T, func() bool {
		evicted, err := m.EvictOne(s.T.Context(), s.ids[lot])
		require.NoError(s.T, err)
		return evicted
	}, time.Minute, time.Millisecond)
}

func (s *servers) Repair(lot int, policy recovery.Policy) {
	how := reconcile.RepairHow{GiveUpClaims: policy == recovery.GiveUp}
	_, err := s.Reconciler().Repair(s.T.Context(), s.ids[lot], how)
	require.NoError(s.T, err)
}

func (s *servers) Show(lot int) recovery.Shown {
	ctx := s.T.Context()
	id := s.ids[lot]
	c := s.Campaign(id)
	var fenceTip, birth string
	require.NoError(s.T, s.DB.Raw("SELECT fence_tip, COALESCE((SELECT birth FROM streams WHERE `partition` = 0), '') FROM lots WHERE id = ?", id).
		Row().Scan(&fenceTip, &birth))
	shown := recovery.Shown{
		Residency: c.Residency, IsRolledBack: strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack),
		HasFenceTip: fenceTip != "" && strings.HasPrefix(fenceTip, birth+" "), Epoch: int(c.Epoch), Attempts: int(c.LoadAttempts),
		Synced: int(c.SyncedSeq), Seen: int(c.SeenSeq), Lost: int(c.LostClaims), Parked: s.ParkedRows(id, "discarded_at IS NULL"),
	}
	var seqs []int
	require.NoError(s.T, s.DB.Raw("SELECT seq FROM claims WHERE campaign_id = ? ORDER BY seq", id).Scan(&seqs).Error)
	shown.Seqs = fmt.Sprint(slices.Clone(seqs))
	shown.Tombstone = s.Redis.Get(ctx, s.Keys(id).Evicted).Val()
	state, err := s.Scripts.State(ctx, id)
	switch {
	case errors.Is(err, lua.ErrAbsent):
		return shown
	case errors.Is(err, lua.ErrDamaged):
		shown.Held = recovery.Damaged
		shown.Status = models.Status(s.Redis.HGet(ctx, s.Keys(id).State, "status").Val())
		return shown
	}
	require.NoError(s.T, err)
	records, err := s.Scripts.CountClaimRecords(ctx, id)
	require.NoError(s.T, err)
	shown.Held = recovery.Present
	shown.Status = state.Status
	shown.RedisEpoch = int(state.Epoch)
	shown.RedisSeq = int(state.Seq)
	shown.Records = int(records)
	return shown
}

// TestModel_ServersDoWhatItDoes: schedules of the model are played on real servers as well, and both hold the same after each turn.
func TestModel_ServersDoWhatItDoes(t *testing.T) {
	t.Parallel()
	seeds := []uint64{
		104,  // a lost lot whose stream was rolled back is fenced
		277,  // a second loss follows a new generation
		349,  // MySQL is rolled back after Redis was
		828,  // users without a state are left of a lot that MySQL forgot
		1594, // MySQL is rolled back to before it knew the stream, twice
		1616, // a lot with a claim whose seq another has is lost
		1971, // such a claim gets a seq that no claim ever had
	}
	for seed := range uint64(testenv.Pick(16, 500)) {
		seeds = append(seeds, seed)
	}
	t.Run("seeds", func(t *testing.T) {
		t.Parallel()
		for worker := range 4 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < len(seeds); i += 4 {
					t.Run(fmt.Sprint(seeds[i]), func(t *testing.T) { //nolint:paralleltest // its worker is
						_, err := recovery.PlayBeside(seeds[i], newServers(t))
						require.NoError(t, err)
					})
				}
			})
		}
	})
}
