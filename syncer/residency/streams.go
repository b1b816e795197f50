package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	generationTries   = 5               // looks at a stream whose generation others change
	generationLockFor = 5 * time.Second // a new generation may take so long to be made
	recordEvery       = 5 * time.Second // a stream that does not move is recorded so often
)

// streams tells an intact claim stream from one that Redis lost, or lost the end of, and a MySQL that has all that it committed from one
// that was put back. A stream has a generation, a random text that
// Redis and MySQL both hold, and MySQL records how far it was seen to be. A stream that is behind that gets a new generation: it
// proves nothing any more about campaigns that were loaded under the old one.
type streams struct {
	db      *gorm.DB
	scripts campaigns.Scripts
	log     *slog.Logger
	lost    prometheus.Counter // entries
	looks   *singleflight.Group
}

// look is what a look at a claim stream found: what MySQL recorded and what Redis held afterwards. broken tells that the stream has
// a new generation, made just now.
type look struct {
	row    models.StreamRecord
	stream lua.Stream
	broken bool
}

// shared is intact for those who ask at the same time. The look may have begun before the caller asked.
func (s *streams) shared(ctx context.Context, partition int) (look, error) {
	flight := s.looks.DoChan(strconv.Itoa(partition), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hydrateTimeout)
		defer cancel()
		return s.intact(ctx, partition)
	})
	select {
	case got := <-flight:
		return got.Val.(look), got.Err //nolint:forcetypeassert // what intact returns
	case <-ctx.Done():
		return look{}, fmt.Errorf("residency: stream %d: %w", partition, context.Cause(ctx))
	}
}

// intact returns what Redis holds of a partition's stream, under the generation that MySQL knows too.
func (s *streams) intact(ctx context.Context, partition int) (seen look, err error) {
	for range generationTries {
		row, found, err := s.row(ctx, partition) // before Redis, which then holds no less
		if err != nil {
			return look{}, err
		}
		if !found {
			if err := s.begin(ctx, partition); err != nil {
				return look{}, err
			}
			continue
		}
		back, err := s.booksIntact(ctx, &row)
		if err != nil {
			return seen, err
		}
		if back {
			seen.broken = true
			continue
		}
		known, err := recorded(&row)
		if err != nil {
			return look{}, err
		}
		seen.row = row
		seen.stream, err = s.read(ctx, partition, known.Tip)
		if err != nil {
			return look{}, err
		}
		why := lua.Position{Stream: seen.stream.StreamPosition}.Behind(lua.Position{Stream: known})
		if why == "" {
			return seen, nil
		}
		if err := s.renew(ctx, &row, known, why); err != nil {
			return look{}, err
		}
		seen.broken = true
	}
	return look{}, fmt.Errorf("residency: stream %d: its generation changed %d times in a row:"+
		" does another deployment use this redis or this database?", partition, generationTries)
}

// read reads a stream, and whether the entry that is known to have been its tip is missing. The entry is asked for first: trimming
// takes the oldest entries, so one that is older was there as well at that moment.
func (s *streams) read(ctx context.Context, partition int, tip lua.EntryID) (lua.Stream, error) {
	next, err := s.scripts.Entries(ctx, partition, tip, 1)
	if err != nil {
		return lua.Stream{}, fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	stream, err := s.scripts.Stream(ctx, partition)
	if err != nil {
		return lua.Stream{}, fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	if missing := len(next) == 0 || next[0].ID != tip; missing && stream.First != (lua.EntryID{}) && stream.First.Less(tip) {
		stream.Gap = tip
	}
	return stream, nil
}

// recorded is how far MySQL knows a stream to have been.
func recorded(row *models.StreamRecord) (lua.StreamPosition, error) {
	tip, err := lua.ParseEntryID(row.Tip)
	if err != nil {
		return lua.StreamPosition{}, fmt.Errorf("residency: stream %d: %w", row.Partition, err)
	}
	return lua.StreamPosition{Generation: row.Generation, Tip: tip, Added: row.Added}, nil
}

func (s *streams) row(ctx context.Context, partition int) (row models.StreamRecord, found bool, err error) {
	err = s.db.WithContext(ctx).Omit("unbooked").Where("`partition` = ?", partition).Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return row, false, nil
	}
	if err != nil {
		return row, false, fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return row, true, nil
}

// begin records the generation of a stream that MySQL has no generation of yet.
func (s *streams) begin(ctx context.Context, partition int) error {
	generation, err := s.scripts.NewGeneration(ctx, partition)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	err = sqlstore.Retry(ctx, func() error {
		row := models.StreamRecord{Partition: partition, Generation: generation, Tip: lua.EntryID{}.String(), TipAt: time.Unix(0, 0).UTC()}
		return s.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
	})
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// record records how far an intact stream is, and which of its claims MySQL lacks.
func (s *streams) record(ctx context.Context, seen *look) error {
	partition := seen.row.Partition
	unbooked, err := s.readUnbooked(ctx, seen)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	tip := seen.stream.Tip.String()
	now := seen.stream.At
	changed, err := sqlstore.On(s.db.WithContext(ctx)).Exec("UPDATE streams SET tip = ?, added = ?, tip_at = ?, unbooked = ?"+
		" WHERE `partition` = ? AND birth = ? AND tip = ?"+
		" AND (tip <> ? OR added <> ? OR COALESCE(unbooked, '') <> ? OR tip_at < ?)",
		tip, seen.stream.Added, now, unbooked, partition, seen.row.Generation, seen.row.Tip,
		tip, seen.stream.Added, unbooked, now.Add(-recordEvery))
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	if changed == 0 || seen.row.Tip == tip {
		return nil // nothing new, or another was faster
	}
	return s.scripts.RecordTip(ctx, partition, seen.stream.Tip)
}
