package residency_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// generations are those of the claim stream in Redis and in MySQL.
func generations(h *syncertest.Stack) (inRedis, inMySQL string) {
	h.T.Helper()
	stream, err := h.Scripts.Stream(h.T.Context(), 0)
	require.NoError(h.T, err)
	require.NoError(h.T, h.DB.Raw("SELECT birth FROM streams WHERE partition_no = 0").Row().Scan(&inMySQL))
	return stream.Generation, inMySQL
}

func setGeneration(h *syncertest.Stack, generation string) {
	h.T.Helper()
	old, _ := generations(h)
	require.NoError(h.T, h.Scripts.ReplaceGeneration(h.T.Context(), 0, old, generation))
}

// What a process sends, see syncertest.Hooks.
const observesStreams, replacesGeneration = "pipeline xrange", "evalsha" // a script without a file

// hooked are scripts on a stack's Redis with hooks.
func hooked(h *syncertest.Stack, hooks syncertest.Hooks) *lua.Scripts {
	h.T.Helper()
	return syncertest.Hooked(h.T, h.Redis, lua.Options{}, hooks)
}

// dealtWith has another process deal with the loss of a stream, and an operator with the campaign.
func dealtWith(h *syncertest.Stack, id string) {
	h.T.Helper()
	require.Equal(h.T, 1, watch(h))
	h.Sync()
	require.Empty(h.T, h.Repair(id, reconcile.RepairHow{}).Left.Differences)
}

// requireInUse requires that both servers have one generation, and that a campaign takes claims.
func requireInUse(h *syncertest.Stack, id string) {
	h.T.Helper()
	inRedis, inMySQL := generations(h)
	require.Equal(h.T, inMySQL, inRedis)
	require.Zero(h.T, watch(h), "nothing is left to do")
	require.Equal(h.T, models.ResidencyResident, h.Residency(id))
	require.Equal(h.T, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
}

// Two processes find one loss. When the slower one is about to stop the campaigns, they have been repaired already.
func TestWatch_ALossStopsCampaignsOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := rollBack(h)
	observations := 0
	slow := hooked(h, syncertest.Hooks{After: func(name string) {
		if name == observesStreams {
			observations++
			if observations == 2 {
				dealtWith(h, id)
			}
		}
	}})
	_, err := syncertest.NewMaintainer(t, h.DB, slow, time.Hour).Watch(t.Context())
	require.NoError(t, err)
	requireInUse(h, id)
}

// A process loses its connection to MySQL after it has changed the generation there, and before it has in Redis. In the meantime another
// process deals with the loss, and the campaigns go on under its generation.
func TestWatch_ALateProcessLeavesTheGenerationOfAnother(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := rollBack(h)
	var once sync.Once
	slow := hooked(h, syncertest.Hooks{Before: func(name string) error {
		if name == replacesGeneration {
			once.Do(func() {
				var connection int64
				require.Eventually(t, func() bool { // it has the row of the stream
					err := h.DB.Raw("SELECT t.trx_mysql_thread_id FROM information_schema.innodb_trx t JOIN information_schema.processlist p" +
						" ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()").Row().Scan(&connection)
					return err == nil
				}, time.Minute, 10*time.Millisecond)
				h.Exec("KILL ?", connection)
				dealtWith(h, id)
			})
		}
		return nil
	}})
	_, err := syncertest.NewMaintainer(t, h.DB, slow, time.Hour).Watch(t.Context())
	requireInUse(h, id)
	require.NoError(t, err, "it observes again")
}

// Several processes find one loss at the same time: the stream gets one generation, and nothing is open under the old one.
func TestWatch_ProcessesThatRenewAStreamTogetherGiveItOneGeneration(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := rollBack(h)
	old, _ := generations(h)
	var log testenv.Buffer
	var processes errgroup.Group
	for range 4 {
		hydrator := residency.NewHydrator(h.DB, h.Scripts, slog.New(slog.NewTextHandler(&log, nil)), nil)
		processes.Go(func() error {
			_, err := residency.NewMaintainer(hydrator, time.Hour, nil, nil).Watch(t.Context())
			return err
		})
	}
	require.NoError(t, processes.Wait())
	inRedis, inMySQL := generations(h)
	require.NotEqual(t, old, inMySQL)
	require.Equal(t, inMySQL, inRedis)
	require.Equal(t, 1, strings.Count(log.String(), "claims may be lost"), log.String())
	require.Equal(t, models.ResidencyLost, h.Residency(id))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
	require.Zero(t, watch(h))
}

// One partition cannot be observed. The others are.
func TestWatch_APartitionThatDoesNotAnswerStopsNoOther(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	m := syncertest.NewMaintainer(t, h.DB, syncertest.ScriptsOn(t, h.Redis, 2), time.Hour)
	_, err := m.Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Redis.Del(t.Context(), "dibs:{p0}:birth").Err())
	require.NoError(t, h.Redis.LPush(t.Context(), "dibs:{p0}:birth", "no text").Err())
	require.NoError(t, h.Redis.Del(t.Context(), "dibs:{p1}:birth").Err())
	broken, err := m.Watch(t.Context())
	require.ErrorContains(t, err, "stream 0")
	require.Equal(t, 1, broken)
	intact, err := h.Hydrator().Intact(t.Context(), []int{0, 1})
	require.ErrorContains(t, err, "stream 0", "no hold of it ends")
	require.Equal(t, []int{1}, intact)
}
