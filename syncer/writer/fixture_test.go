package writer_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models/event"
	"dibs/syncer/offset"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func startTuned(t testing.TB, cfg writer.Config, how writer.Tuning) *writer.Writer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = syncertest.Quiet()
	}
	w, err := writer.NewTuned(cfg, how)
	require.NoError(t, err)
	syncertest.CloseAfter(t, w)
	return w
}

type feed struct {
	t         testing.TB
	db        *gorm.DB
	w         *writer.Writer
	partition int
	turn      int64
	at        event.Offset
}

func newFeed(t testing.TB, db *gorm.DB, w *writer.Writer, partition int) *feed {
	t.Helper()
	f := &feed{t: t, db: db, w: w, partition: partition}
	f.begin()
	return f
}

func (f *feed) begin() {
	f.t.Helper()
	var err error
	f.turn, f.at, err = f.w.Begin(f.t.Context(), f.partition)
	require.NoError(f.t, err)
}

func (f *feed) add(events ...event.Event) error {
	read := &event.Read{Partition: f.partition, Turn: f.turn}
	for _, e := range events {
		read.Events = append(read.Events, event.Raw{Event: e, Payload: []byte(`{"id":"` + e.ID + `"}`)})
	}
	f.at.Read += int64(len(events))
	f.at.EntryID = fmt.Sprint(f.at.Read, "-0")
	f.at.EventID = events[len(events)-1].ID
	read.Upto = f.at
	return f.w.Add(read)
}

func (f *feed) applied() {
	f.t.Helper()
	require.Eventually(f.t, f.isApplied, time.Minute, time.Millisecond)
}

func (f *feed) isApplied() bool {
	offsets, err := offset.Read(f.t.Context(), f.db, f.partition)
	return err == nil && offsets[f.partition] == f.at
}

func (f *feed) send(events ...event.Event) {
	f.t.Helper()
	require.NoError(f.t, f.add(events...))
	f.applied()
}

func singlesOf(mode string, first, n int64) []event.Event {
	events := syncertest.ClaimsOf("c", first, n)
	for i := range events {
		events[i].Mode = mode
		events[i].Quantity = 1
	}
	return events
}
