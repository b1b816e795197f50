package syncer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer"
	"dibs/syncer/campaigns"
	"dibs/syncer/compare"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/shards"

	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func newRole(t *testing.T, s *syncertest.Stream, db *gorm.DB) *syncer.Syncer {
	t.Helper()
	scripts, err := lua.New(s.Redis, lua.Options{Partitions: 1})
	require.NoError(t, err)
	loader, relay := syncertest.NewLoader(t, db, scripts), resolve.NewRelay(db, scripts, nil)
	return syncer.New(syncer.Config{
		Trimmer: syncertest.NewTrimmer(t, s.Redis, "syncer"),
		Pruner:  retention.NewPruner(db), Keeper: syncertest.NewMaintainer(t, db, scripts, time.Hour),
		Comparer: compare.New(db, scripts, loader, syncertest.Quiet(), nil), Relay: relay, Expirer: resolve.NewExpirer(relay, nil, nil),
		Finalizer:  resolve.NewFinalizer(relay, loader, clockwork.NewRealClock(), nil),
		Mover:      shards.New(db, scripts, loader, nil),
		CheckReads: func(ctx context.Context) error { return sqlstore.CheckReads(ctx, db) },
		Leader:     syncer.NewLeader(scripts, "one", syncertest.Quiet()), Logger: syncertest.Quiet(),
	})
}

func TestSyncer_AFollowerLeavesTheLeadersJobsUntilItLeads(t *testing.T) {
	t.Parallel()
	s, db := syncertest.NewStream(t), syncertest.OpenServer(t)
	require.NoError(t, s.Redis.Set(t.Context(), lua.LeaderKey, "another", 0).Err())
	row, err := campaigns.NewOutboxRow(stored.OutboxEvent, &event.Event{Type: event.CampaignClosed, CampaignID: "a"})
	require.NoError(t, err)
	row.CreatedAt = row.CreatedAt.Add(-time.Minute)
	require.NoError(t, db.Create(&row).Error)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	role := newRole(t, s, db)
	go func() { done <- role.Run(ctx) }()
	isTold := func() bool {
		entries, err := s.Redis.XRange(t.Context(), s.Key, "-", "+").Result()
		require.NoError(t, err)
		return slices.ContainsFunc(entries, func(e redis.XMessage) bool { return lua.EventIDOf(&e) == row.ID })
	}
	s.Add(1)
	require.Eventually(t, func() bool {
		groups, err := s.Redis.XInfoGroups(t.Context(), s.Key).Result()
		return err == nil && len(groups) == 1
	}, time.Minute, 5*time.Millisecond)
	require.Never(t, isTold, time.Second, 50*time.Millisecond)
	require.NoError(t, s.Redis.Del(t.Context(), lua.LeaderKey).Err())
	require.Eventually(t, isTold, time.Minute, 5*time.Millisecond)
	for range 2 { // rounds of all jobs
		s.Add(500)
		s.Ack("syncer", s.Read("syncer", 1000)...)
		require.Eventually(t, func() bool { return s.Redis.XLen(t.Context(), s.Key).Val() <= 100 }, time.Minute, 5*time.Millisecond, "it trims")
	}
	stop()
	require.NoError(t, <-done)
}
