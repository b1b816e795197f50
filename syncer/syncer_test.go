package syncer_test

import (
	"context"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/syncer"
	"dibs/syncer/residency"
	"dibs/syncer/retention"

	"github.com/stretchr/testify/require"
)

func TestSyncer_RunTrimsAndStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	s := syncertest.NewStream(t)
	s.Add(500)
	db := syncertest.OpenServer(t)
	scripts, err := lua.New(s.Rdb, lua.Options{Partitions: 1})
	require.NoError(t, err)
	role, err := syncer.New(syncer.Config{
		Trimmer:       syncertest.NewTrimmer(t, retention.TrimmerConfig{Redis: s.Rdb, Partitions: 1, Groups: []string{"syncer"}}),
		Resumer:       syncertest.NewSweeper(t, db, scripts),
		StreamWatcher: residency.NewStreamWatcher(db, scripts, syncertest.Quiet()),
		Evictor:       syncertest.NewEvictor(t, db, scripts, time.Hour),
		TrimEvery:     5 * time.Millisecond, ResumeEvery: 5 * time.Millisecond, Logger: syncertest.Quiet(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- role.Run(ctx) }()
	require.Eventually(t, func() bool {
		groups, err := s.Rdb.XInfoGroups(t.Context(), s.Key).Result()
		return err == nil && len(groups) == 1
	}, 5*time.Second, 5*time.Millisecond)
	s.Ack("syncer", s.Read("syncer", 500)...)
	require.Eventually(t, func() bool { _, n := s.Left(); return n < 100 }, 5*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
