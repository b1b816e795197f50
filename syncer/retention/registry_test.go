package retention_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/retention"
)

const streams = 3

func groupsIn(t *testing.T, scripts *lua.Scripts) (names [streams][]string) {
	t.Helper()
	for p := range streams {
		groups, err := scripts.Groups(t.Context(), p)
		require.NoError(t, err)
		for i := range groups {
			names[p] = append(names[p], groups[i].Name)
		}
	}
	return names
}

func listed(t *testing.T, registry *retention.Registry) (names []string) {
	t.Helper()
	list, err := registry.List(t.Context())
	require.NoError(t, err)
	for _, g := range list {
		names = append(names, g.Name)
		require.Len(t, g.Partitions, streams)
	}
	return names
}

func TestRegistry_TheSettingIsOnlyTheInitialSet(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.ScriptsOn(t, testenv.Redis(t).Client(), streams)
		first := retention.NewRegistry(db, scripts, []string{"syncer", "finance"})
		require.Equal(t, []string{"finance", "syncer"}, listed(t, first))
		require.NoError(t, first.Remove(t.Context(), "finance"))
		later := retention.NewRegistry(db, scripts, []string{"syncer", "finance", "audit"})
		require.Equal(t, []string{"syncer"}, listed(t, later))

		added, err := later.Add(t.Context(), "audit")
		require.NoError(t, err)
		require.True(t, added)
		added, err = first.Add(t.Context(), "audit")
		require.NoError(t, err)
		require.False(t, added)
		require.Equal(t, [streams][]string{{"audit"}, {"audit"}, {"audit"}}, groupsIn(t, scripts))
		require.ErrorIs(t, first.Remove(t.Context(), "nobody"), models.ErrNotFound)
		var actions []string
		require.NoError(t, db.Raw("SELECT action FROM audit_log ORDER BY id").Scan(&actions).Error)
		require.Equal(t, []string{"group.removed", "group.added"}, actions)
	})
}

func TestRegistry_ListsLagAndPending(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(100)
	scripts := syncertest.ScriptsOn(t, s.Redis, streams)
	registry := syncertest.NewRegistry(t, scripts, "syncer", "finance")
	_, err := registry.Add(t.Context(), "finance")
	require.NoError(t, err)
	s.Ack("finance", s.Read("finance", 60)[:50]...)
	list, err := registry.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []models.GroupLag{
		{Name: "finance", Partitions: []models.PartitionLag{{Partition: 0, Lag: 40, Pending: 10}, {Partition: 1}, {Partition: 2}}},
		{Name: "syncer", Partitions: []models.PartitionLag{{Partition: 0, Lag: 100}, {Partition: 1}, {Partition: 2}}},
	}, list)
}

func TestRegistry_AHalfRemovedGroupStaysRegistered(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	scripts := syncertest.ScriptsOn(t, rdb, streams)
	db := syncertest.OpenServer(t)
	isRemoving, destroys := false, 0
	failing := syncertest.Hooked(t, rdb, lua.Options{Partitions: streams}, syncertest.Hooks{Before: func(name string) error {
		if name == "xgroup" && isRemoving {
			destroys++
			if destroys == 2 {
				return errStep
			}
		}
		return nil
	}})
	registry := retention.NewRegistry(db, failing, []string{"syncer", "finance"})
	trimmer := trimmerOf(t, rdb, registry)
	trim(t, trimmer)
	isRemoving = true
	require.ErrorIs(t, registry.Remove(t.Context(), "finance"), errStep)
	isRemoving = false
	require.NotContains(t, groupsIn(t, scripts)[0], "finance")
	trim(t, trimmer)
	for _, groups := range groupsIn(t, scripts) {
		require.Equal(t, []string{"finance", "syncer"}, groups)
	}
}

var errStep = errors.New("the step that fails")

func TestRegistry_ARemovedGroupStaysRemovedWhileTrimmersWork(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	scripts := syncertest.ScriptsOn(t, rdb, streams)
	db := syncertest.OpenServer(t)
	registry := retention.NewRegistry(db, scripts, []string{"syncer"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var trimmers sync.WaitGroup
	for range 3 {
		trimmer := trimmerOf(t, rdb, registry)
		trimmers.Go(func() {
			for ctx.Err() == nil {
				_, _ = trimmer.Trim(ctx)
			}
		})
	}
	for range 20 {
		_, err := registry.Add(t.Context(), "audit")
		require.NoError(t, err)
		require.NoError(t, registry.Remove(t.Context(), "audit"))
	}
	cancel()
	trimmers.Wait()
	trim(t, trimmerOf(t, rdb, registry))
	require.Equal(t, []string{"syncer"}, listed(t, registry))
	require.NotContains(t, groupsIn(t, scripts)[0], "audit")
}

// While MySQL is away the registry is unknown, so nothing is trimmed;
// backlogs are still measured.
func TestTrimmer_TrimsNothingWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(1000)
	require.NoError(t, s.Redis.XGroupCreate(t.Context(), s.Key, "syncer", "0").Err())
	s.Ack("syncer", s.Read("syncer", 1000)...)
	db := syncertest.OpenServer(t)
	scripts := syncertest.ScriptsOn(t, s.Redis, 1)
	trimmer := trimmerOf(t, s.Redis, retention.NewRegistry(db, scripts, []string{"syncer"}))
	require.NoError(t, sqlstore.Close(db))
	_, err := trimmer.Trim(t.Context())
	require.ErrorContains(t, err, "registry of groups")
	first, _ := s.Left()
	require.Zero(t, first)
}

func trimmerOf(t *testing.T, rdb *redis.Client, registry *retention.Registry) *retention.Trimmer {
	t.Helper()
	cfg := syncertest.Trimming(t, rdb, streams)
	cfg.Registry = registry
	return retention.NewTrimmer(cfg)
}
