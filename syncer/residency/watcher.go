package residency

import (
	"context"
	"errors"
	"log/slog"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
)

// StreamWatcher records how far the claim streams are, and notices a Redis that was rolled back: a stream that lost entries, or a campaign
// that was evicted and is there again. It is for one goroutine; any number of processes may have one.
type StreamWatcher struct {
	streams streams
	evicted string // the campaign up to which evicted ones were looked at
}

// NewStreamWatcher makes a watcher of what a hydrator loads.
func NewStreamWatcher(h *Hydrator) *StreamWatcher { return &StreamWatcher{streams: h.streams} }

// Watch looks once at all streams, and at some of the evicted campaigns in turn. It returns how many streams turn out to have lost
// entries; Resumer then looks after the campaigns of their partitions. Errors: those of lua.Scripts and of the database, after the
// others had their turn.
func (w *StreamWatcher) Watch(ctx context.Context) (broken int, err error) {
	all, err := w.streams.observe(ctx, w.streams.partitions()...)
	if err != nil {
		return 0, err
	}
	var failed []error
	for i := range all {
		seen := &all[i]
		err := seen.err
		action := recovery.PlanPartition(&seen.Partition).Action
		if err == nil && action != recovery.None {
			seen, err = w.streams.intact(ctx, seen.row.Partition)
		}
		if err == nil && seen.isNew {
			broken++
		}
		if err == nil {
			err = w.streams.record(ctx, seen)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return broken, errors.Join(append(failed, w.watchEvicted(ctx))...)
}

func (s *streams) partitions() []int {
	all := make([]int, s.scripts.Partitions())
	for p := range all {
		all[p] = p
	}
	return all
}

// watchEvicted stops campaigns that Redis holds although they were evicted: it was rolled back to a time before that. Perhaps nothing else
// shows it, and such a campaign would not be notified of changes.
func (w *StreamWatcher) watchEvicted(ctx context.Context) error {
	page, err := campaigns.Lots(ctx, w.streams.db, lua.MaxFences, "id, epoch", "residency = ?", models.ResidencyEvicted)(w.evicted)
	if err != nil {
		return err
	}
	w.evicted = ""
	if len(page) == lua.MaxFences {
		w.evicted = page[len(page)-1].ID
	}
	stopped, err := w.streams.stop(ctx, page)
	if err != nil || len(stopped) == 0 {
		return err
	}
	w.streams.log.LogAttrs(ctx, slog.LevelError,
		"redis was rolled back to before evictions: the campaigns take no claims until mysql is proven to"+
			" have all of them", slog.Int("stopped", len(stopped)))
	return w.streams.recordLost(ctx, stopped, "redis was rolled back: it holds a campaign that was evicted")
}
