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
	// markTries bounds how often in a row a stream's mark is looked at while others change it.
	markTries = 5
	// markLockFor is how long making a new mark may take.
	markLockFor = 5 * time.Second
)

// marks tell an unbroken claim stream from one that Redis lost, or lost the end of. A stream gets a random mark, kept in Redis
// and in MySQL, once; a mark that is gone or another one, or a tip behind the one that MySQL has seen, means that entries
// were lost, and gets the stream a new mark. Whatever was loaded under the old one can't be proven by this stream any more.
type generations struct {
	db      *gorm.DB
	scripts campaigns.Scripts
	log     *slog.Logger
}

// intact returns what Redis holds of a partition's stream, under the mark that MySQL knows too. broken tells that it is a
// new mark, made just now.
func (m *generations) intact(ctx context.Context, partition int) (stream lua.Stream, broken bool, err error) {
	for range markTries {
		row, found, err := m.row(ctx, partition) // before Redis, whose tip is then never behind for no reason
		if err != nil {
			return lua.Stream{}, false, err
		}
		stream, err := m.scripts.Stream(ctx, partition)
		if err != nil {
			return lua.Stream{}, false, fmt.Errorf("syncer: stream %d: %w", partition, err)
		}
		if !found {
			if err := m.begin(ctx, partition); err != nil {
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
		if err := m.renew(ctx, partition, row.Generation, why); err != nil {
			return lua.Stream{}, false, err
		}
		broken = true
	}
	return lua.Stream{}, false, fmt.Errorf("syncer: the mark of stream %d does not come to rest", partition)
}

func whyBroken(row *models.StreamRecord, stream *lua.Stream) (string, error) {
	tip, err := lua.ParseEntryID(row.Tip)
	switch {
	case err != nil:
		return "", fmt.Errorf("syncer: stream %d: %w", row.Partition, err)
	case stream.Generation == "":
		return "redis lost the claim stream", nil
	case stream.Generation != row.Generation:
		return "redis holds another claim stream", nil
	case stream.Tip.Less(tip):
		return fmt.Sprintf("the claim stream went back from %s to %s", tip, stream.Tip), nil
	}
	return "", nil
}

func (m *generations) row(ctx context.Context, partition int) (row models.StreamRecord, found bool, err error) {
	err = m.db.WithContext(ctx).Where("`partition` = ?", partition).Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return row, false, nil
	}
	if err != nil {
		return row, false, fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	return row, true, nil
}

// begin takes down the mark of a stream that MySQL has no mark of yet. Campaigns that were loaded before there were marks
// are taken for whole, once.
func (m *generations) begin(ctx context.Context, partition int) error {
	generation, err := m.scripts.NewGeneration(ctx, partition)
	if err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	err = sqlstore.Retry(ctx, func() error {
		return m.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
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
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	return nil
}

// renew gives a broken stream a new mark: MySQL first, so that who dies in between leaves two that differ.
func (m *generations) renew(ctx context.Context, partition int, old, why string) error {
	lock, err := m.scripts.LockGeneration(ctx, partition, markLockFor)
	if err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // it runs out by itself
	row, _, err := m.row(ctx, partition)
	if err != nil || row.Generation != old {
		return err // another was faster
	}
	stream, err := m.scripts.Stream(ctx, partition)
	if err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	generation, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	put := m.db.WithContext(ctx).Exec("UPDATE streams SET birth = ?, tip = ?, tip_at = ? WHERE `partition` = ? AND birth = ?",
		generation.String(), stream.Tip.String(), sqlstore.Now(), partition, old)
	if put.Error != nil || put.RowsAffected == 0 {
		return put.Error
	}
	m.log.LogAttrs(ctx, slog.LevelError, "claims may be lost: every campaign of the partition waits for proof or repair",
		slog.Int("partition", partition), slog.String("reason", why))
	if err := m.scripts.SetGeneration(ctx, partition, generation.String()); err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	return nil
}

// note records the tip of an intact stream.
func (m *generations) note(ctx context.Context, partition int, stream *lua.Stream) error {
	row, found, err := m.row(ctx, partition)
	if err != nil || !found || row.Generation != stream.Generation {
		return err
	}
	recorded, err := lua.ParseEntryID(row.Tip)
	if err != nil || !recorded.Less(stream.Tip) {
		return err
	}
	err = m.db.WithContext(ctx).Exec("UPDATE streams SET tip = ?, tip_at = ? WHERE `partition` = ? AND birth = ? AND tip = ?",
		stream.Tip.String(), sqlstore.Now(), partition, stream.Generation, row.Tip).Error
	if err != nil {
		return fmt.Errorf("syncer: stream %d: %w", partition, err)
	}
	return nil
}

// Marker records the tips of the claim streams and notices when one lost something. Any number may run at once.
type StreamWatcher struct{ generations generations }

// NewMarker makes a marker.
func NewStreamWatcher(db *gorm.DB, scripts campaigns.Scripts, log *slog.Logger) *StreamWatcher {
	return &StreamWatcher{generations{db: db, scripts: scripts, log: log}}
}

// Mark goes once over all streams and returns how many of them turned out to have lost something: the campaigns of their
// partitions are the sweeper's then.
func (m *StreamWatcher) Watch(ctx context.Context) (broken int, err error) {
	var failed []error
	for p := range m.generations.scripts.Partitions() {
		stream, isNew, err := m.generations.intact(ctx, p)
		if isNew {
			broken++
		}
		if err == nil {
			err = m.generations.note(ctx, p, &stream)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return broken, errors.Join(failed...)
}
