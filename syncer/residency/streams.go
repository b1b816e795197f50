package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	generationTries   = 5               // looks at a stream whose generation others change
	generationLockFor = 5 * time.Second // a new generation may take so long to be made
)

// streams tells an intact claim stream from one that Redis lost, or lost the end of. A stream has a generation, a random text that
// Redis and MySQL both hold. A generation that is gone, another generation, or a tip behind the one that MySQL has recorded means
// that entries were lost; the stream then gets a new generation. This stream proves nothing any more about campaigns that
// were loaded under the old one.
type streams struct {
	db      *gorm.DB
	scripts campaigns.Scripts
	log     *slog.Logger
}

// intact returns what Redis holds of a partition's stream, under the generation that MySQL knows too. broken tells that it is a
// new generation, made just now.
func (s *streams) intact(ctx context.Context, partition int) (stream lua.Stream, broken bool, err error) {
	for range generationTries {
		row, found, err := s.row(ctx, partition) // before Redis: a tip behind this one then means a loss
		if err != nil {
			return lua.Stream{}, false, err
		}
		stream, err := s.scripts.Stream(ctx, partition)
		if err != nil {
			return lua.Stream{}, false, fmt.Errorf("residency: stream %d: %w", partition, err)
		}
		if !found {
			if err := s.begin(ctx, partition); err != nil {
				return lua.Stream{}, false, err
			}
			continue
		}
		why, err := whyBroken(&row, &stream)
		if err != nil {
			return lua.Stream{}, false, err
		}
		if why == "" {
			return stream, broken, nil
		}
		if err := s.renew(ctx, partition, row.Generation, why); err != nil {
			return lua.Stream{}, false, err
		}
		broken = true
	}
	return lua.Stream{}, false, fmt.Errorf("residency: stream %d: its generation changed %d times in a row:"+
		" does another deployment use this redis or this database?", partition, generationTries)
}

func whyBroken(row *models.StreamRecord, stream *lua.Stream) (string, error) {
	tip, err := lua.ParseEntryID(row.Tip)
	switch {
	case err != nil:
		return "", fmt.Errorf("residency: stream %d: %w", row.Partition, err)
	case stream.Generation == "":
		return "redis lost the claim stream", nil
	case stream.Generation != row.Generation:
		return "redis holds another claim stream", nil
	case stream.Tip.Less(tip):
		return fmt.Sprintf("the claim stream went back from %s to %s", tip, stream.Tip), nil
	}
	return "", nil
}

func (s *streams) row(ctx context.Context, partition int) (row models.StreamRecord, found bool, err error) {
	err = s.db.WithContext(ctx).Where("`partition` = ?", partition).Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return row, false, nil
	}
	if err != nil {
		return row, false, fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return row, true, nil
}

// begin records the generation of a stream that MySQL has no generation of yet. Campaigns that were loaded before there were
// generations are taken for whole, once.
func (s *streams) begin(ctx context.Context, partition int) error {
	generation, err := s.scripts.NewGeneration(ctx, partition)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	err = sqlstore.Retry(ctx, func() error {
		return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			row := models.StreamRecord{Partition: partition, Generation: generation, Tip: lua.EntryID{}.String(), TipAt: sqlstore.Now()}
			put := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&row)
			if put.Error != nil || put.RowsAffected == 0 {
				return put.Error
			}
			return tx.Exec("UPDATE campaigns SET stream_birth = ? WHERE `partition` = ? AND residency = ? AND stream_birth = ''",
				generation, partition, models.ResidencyResident).Error
		})
	})
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// renew gives a broken stream a new generation, in MySQL first: if this process dies in between, the two differ.
func (s *streams) renew(ctx context.Context, partition int, old, why string) error {
	lock, err := s.scripts.LockGeneration(ctx, partition, generationLockFor)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // it runs out by itself
	row, _, err := s.row(ctx, partition)
	if err != nil || row.Generation != old {
		return err // another was faster
	}
	stream, err := s.scripts.Stream(ctx, partition)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	generation, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	put := s.db.WithContext(ctx).Exec("UPDATE streams SET birth = ?, tip = ?, tip_at = ? WHERE `partition` = ? AND birth = ?",
		generation.String(), stream.Tip.String(), sqlstore.Now(), partition, old)
	if put.Error != nil || put.RowsAffected == 0 {
		return put.Error
	}
	s.log.LogAttrs(ctx, slog.LevelError, "claims may be lost: the campaigns of the partition that were in redis take none until"+
		" `dibs reconcile --repair` rebuilds them",
		slog.Int("partition", partition), slog.String("reason", why))
	if err := s.scripts.SetGeneration(ctx, partition, generation.String()); err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// note records the tip of an intact stream.
func (s *streams) note(ctx context.Context, partition int, stream *lua.Stream) error {
	row, found, err := s.row(ctx, partition)
	if err != nil || !found || row.Generation != stream.Generation {
		return err
	}
	recorded, err := lua.ParseEntryID(row.Tip)
	if err != nil || !recorded.Less(stream.Tip) {
		return err
	}
	err = s.db.WithContext(ctx).Exec("UPDATE streams SET tip = ?, tip_at = ? WHERE `partition` = ? AND birth = ? AND tip = ?",
		stream.Tip.String(), sqlstore.Now(), partition, stream.Generation, row.Tip).Error
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// StreamWatcher records the tips of the claim streams and notices that one lost entries. Any number may run at once.
type StreamWatcher struct{ streams streams }

// NewStreamWatcher makes a watcher.
func NewStreamWatcher(db *gorm.DB, scripts campaigns.Scripts, log *slog.Logger) *StreamWatcher {
	return &StreamWatcher{streams{db: db, scripts: scripts, log: log}}
}

// Watch looks once at all streams and returns how many of them turn out to have lost entries. Resumer then looks after the
// campaigns of their partitions. Errors: those of lua.Scripts and of the database, after the other streams had their turn.
func (w *StreamWatcher) Watch(ctx context.Context) (broken int, err error) {
	var failed []error
	for p := range w.streams.scripts.Partitions() {
		stream, isNew, err := w.streams.intact(ctx, p)
		if isNew {
			broken++
		}
		if err == nil {
			err = w.streams.note(ctx, p, &stream)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return broken, errors.Join(failed...)
}
