package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models/event"
)

// recover handles a loss: the entry at MySQL's offset is missing in Redis.
//
//  1. The partition gets its next generation and state recovering, in MySQL
//     and then in Redis. All its lots are away.
//  2. Processes report to MySQL what they saw of each lot.
//  3. The stream is read again from the newest entry that both servers have.
//     Known rows stay as they are. When the generation's entry is applied,
//     the partition is ok.
//
// If the reader dies, the partition stays
// recovering, and the next reader starts again.
func (r *offsetReader) recover(ctx context.Context, offset event.Offset) error {
	trimmed, err := r.trimmed(ctx)
	if err != nil {
		return err
	}
	id, err := lua.ParseEntryID(offset.EntryID)
	if err != nil {
		return err
	}
	if !offset.IsStart() && !trimmed.Less(id) && trimmed != (lua.EntryID{}) {
		return r.gap(ctx, offset, trimmed)
	}
	now, err := r.stop(ctx, offset)
	if err != nil {
		return err
	}
	r.metrics.lost.WithLabelValues(strconv.Itoa(r.partition)).Inc()
	r.cfg.Logger.LogAttrs(ctx, slog.LevelError, "redis lost entries of a claim stream that MySQL has applied:"+
		" the campaigns of the partition take no claims until the stream is read again", slog.String("stream", r.stream),
		slog.String("applied", offset.EntryID), slog.Int64("generation", now.Generation))
	if err := sleep.For(ctx, r.cfg.Settle); err != nil {
		return err
	}
	back, err := r.newestThere(ctx, id)
	if err != nil {
		return err
	}
	back.Generation = now.Generation
	back.State = event.PartitionRecovering
	moved, err := r.cfg.Log.Move(ctx, r.partition, now, back)
	if err != nil {
		return err
	}
	if moved {
		r.recovered = now.Generation
	}
	return errTurn
}

// stop is step 1 of recover. It returns the partition's new state in MySQL.
func (r *offsetReader) stop(ctx context.Context, at event.Offset) (event.Offset, error) {
	generation := at.Generation + 1
	for {
		next := at
		next.State = event.PartitionRecovering
		next.Generation = generation
		moved, err := r.cfg.Log.Move(ctx, r.partition, at, next)
		if err != nil {
			return next, err
		}
		if !moved {
			return next, errTurn
		}
		isNext, inForce, err := r.scripts.NextGeneration(ctx, r.partition, generation)
		if err != nil || isNext {
			return next, err
		}
		at = next
		generation = inForce + 1
	}
}

// gap records that MySQL is older than the stream. Claims go on;
// nothing is applied or loaded.
func (r *offsetReader) gap(ctx context.Context, offset event.Offset, trimmed lua.EntryID) error {
	if offset.State != event.PartitionGap {
		to := offset
		to.State = event.PartitionGap
		if _, err := r.cfg.Log.Move(ctx, r.partition, offset, to); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: MySQL has applied the stream up to %s, and the stream is trimmed up to %s",
		errGap, offset.EntryID, trimmed)
}

func (r *offsetReader) noGap(ctx context.Context, offset event.Offset) error {
	to := offset
	to.State = event.PartitionOK
	if _, err := r.cfg.Log.Move(ctx, r.partition, offset, to); err != nil {
		return err
	}
	return errTurn
}

// newestThere returns the newest recent offset that Redis still has, or
// else the start of the stream. MySQL has applied what was trimmed,
// unless Redis has another stream now.
func (r *offsetReader) newestThere(ctx context.Context, applied lua.EntryID) (event.Offset, error) {
	trimmed, err := r.trimmed(ctx) // again: the stream may have been trimmed until the loss
	if err != nil {
		return event.Offset{}, err
	}
	positions, err := r.cfg.Log.Positions(ctx, r.partition)
	if err != nil {
		return event.Offset{}, err
	}
	for _, at := range positions {
		found, err := r.cfg.Client.XRangeN(ctx, r.stream, at.EntryID, at.EntryID, 1).Result()
		if err != nil {
			return at, fmt.Errorf("consumer: read: %w", err)
		}
		if lua.IsEntry(found, at) {
			return at, nil
		}
	}
	start := event.NoOffset()
	if trimmed == (lua.EntryID{}) {
		return start, nil
	}
	first, err := r.cfg.Client.XRangeN(ctx, r.stream, "-", "+", 1).Result()
	if err != nil {
		return start, fmt.Errorf("consumer: read: %w", err)
	}
	var id lua.EntryID
	if len(first) > 0 {
		id, err = lua.ParseEntryID(first[0].ID)
	}
	if err == nil && (len(first) == 0 || !id.Less(applied)) {
		err = r.cfg.Client.Del(ctx, lua.TrimmedKey(r.partition)).Err()
		return start, err
	}
	if err != nil {
		return start, err
	}
	info, err := r.cfg.Client.XInfoStream(ctx, r.stream).Result()
	if err != nil {
		return start, fmt.Errorf("consumer: read: %w", err)
	}
	read := max(1, info.EntriesAdded-info.Length+1)
	return event.Offset{EntryID: first[0].ID, EventID: lua.EventIDOf(&first[0]), Read: read}, nil
}
