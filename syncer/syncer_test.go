package syncer_test

import (
	"context"
	"dibs/lua"
	"dibs/syncer"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSyncer_RunTrimsAndStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	s.add(500)
	db := openServer(t)
	scripts, err := lua.New(s.rdb, lua.Options{Partitions: 1})
	require.NoError(t, err)
	role, err := syncer.New(syncer.Config{
		Trimmer:   newTrimmer(t, syncer.TrimmerConfig{Redis: s.rdb, Partitions: 1, Groups: []string{"syncer"}}),
		Sweeper:   newSweeper(t, db, scripts),
		Marker:    syncer.NewMarker(db, scripts, quiet()),
		Evictor:   newEvictor(t, db, scripts, time.Hour),
		TrimEvery: 5 * time.Millisecond, SweepEvery: 5 * time.Millisecond, Logger: quiet(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- role.Run(ctx) }()
	require.Eventually(t, func() bool {
		groups, err := s.rdb.XInfoGroups(t.Context(), s.key).Result()
		return err == nil && len(groups) == 1
	}, 5*time.Second, 5*time.Millisecond)
	s.ack("syncer", s.read("syncer", 500)...)
	require.Eventually(t, func() bool { _, n := s.left(); return n < 100 }, 5*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
