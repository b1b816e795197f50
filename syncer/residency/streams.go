package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	generationTries = 5 // steps that a stream may need in a row, as others change its generation
	replicaPause    = 100 * time.Millisecond
)

// streams distinguishes an intact claim stream from one that Redis lost, or lost the end of, and a MySQL that has all that it committed from one
// that was rolled back. A stream has a generation, a random text that Redis and MySQL both hold, and MySQL records how far it was seen
// to be. Package recovery decides what is done; after a loss the stream gets a new generation, and proves nothing any more about
// campaigns that were loaded under the old one.
type streams struct {
	db           *gorm.DB
	scripts      *lua.Scripts
	log          *slog.Logger
	lost         prometheus.Counter // entries
	observations *singleflight.Group
}

// observed is what was read of a claim stream: first MySQL, then Redis.
type observed struct {
	recovery.Partition

	row    models.StreamRecord
	stream lua.Stream
	isNew  bool // its generation was made just now
	err    error
}

// shared is intact for those who ask at the same time. It may have started before the caller asked.
func (s *streams) shared(ctx context.Context, partition int) error {
	flight := s.observations.DoChan(strconv.Itoa(partition), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hydrateTimeout)
		defer cancel()
		_, err := s.intact(ctx, partition)
		return nil, err
	})
	select {
	case got := <-flight:
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("residency: stream %d: %w", partition, context.Cause(ctx))
	}
}

// intact returns what Redis holds of a partition's stream, under the generation that MySQL knows too. It does what package recovery
// decides until the stream is so.
func (s *streams) intact(ctx context.Context, partition int) (*observed, error) {
	isNew := false
	rounds := 0
	for steps := 0; steps < generationTries; {
		all, err := s.observe(ctx, partition)
		if err != nil {
			return nil, err
		}
		seen := &all[0]
		if seen.err != nil {
			return nil, seen.err
		}
		rounds++
		seen.Rounds = rounds
		step := recovery.PlanPartition(&seen.Partition)
		switch step.Action {
		case recovery.WaitReplica:
			if err := sleep.For(ctx, replicaPause); err != nil {
				return nil, err
			}
			continue
		case recovery.BeginGeneration:
			err = s.begin(ctx, partition)
		case recovery.StopPartition:
			isNew = true
			err = s.stopPartition(ctx, seen)
		default:
			seen.isNew = isNew
			return seen, nil
		}
		if err != nil && !errors.Is(err, lua.ErrOther) { // which is another process's generation
			return nil, err
		}
		rounds = 0
		steps++
	}
	return nil, fmt.Errorf("residency: stream %d: its generation changed %d times in a row:"+
		" does another deployment use this redis or this database?", partition, generationTries)
}

// stopPartition takes campaigns of a stream out of use: those about which the stream no longer proves anything.
func (s *streams) stopPartition(ctx context.Context, seen *observed) error {
	return s.renew(ctx, &seen.row, seen.Recorded, lua.Position{Stream: seen.Stream}.Behind(lua.Position{Stream: seen.Recorded}))
}

func (s *streams) partitions() []int {
	all := make([]int, s.scripts.Partitions())
	for p := range all {
		all[p] = p
	}
	return all
}

// observe reads some partitions, in their order.
func (s *streams) observe(ctx context.Context, partitions ...int) ([]observed, error) {
	all := make([]observed, len(partitions))
	if err := s.readMySQL(ctx, partitions, all); err != nil {
		return nil, fmt.Errorf("residency: streams: %w", err)
	}
	tips := make(map[int]lua.EntryID, len(partitions))
	for i, partition := range partitions {
		all[i].row.Partition = partition
		tips[partition] = all[i].Recorded.Tip
	}
	streams, errs := s.scripts.Streams(ctx, partitions, tips)
	for i := range all {
		one := &all[i]
		one.stream = streams[i]
		one.Stream = streams[i].StreamPosition
		one.RecordedAge = streams[i].At.Sub(one.row.TipAt)
		if !one.Known { // MySQL has no record of the stream: nothing of it can be missing
			one.Stream.Added = 0
		}
		if errs[i] != nil {
			one.err = fmt.Errorf("residency: stream %d: %w", partitions[i], errs[i])
		}
	}
	return all, nil
}

// readMySQL reads what MySQL has of some partitions.
func (s *streams) readMySQL(ctx context.Context, partitions []int, all []observed) error {
	var rows []models.StreamRecord
	if err := s.db.WithContext(ctx).Where("partition_no IN ? AND birth <> ''", partitions).Find(&rows).Error; err != nil {
		return err
	}
	for i, partition := range partitions {
		one := &all[i]
		for j := range rows {
			if rows[j].Partition != partition {
				continue
			}
			tip, err := lua.ParseEntryID(rows[j].Tip)
			if err != nil {
				return fmt.Errorf("partition %d: %w", partition, err)
			}
			one.Known = true
			one.row = rows[j]
			one.Recorded = lua.StreamPosition{Generation: one.row.Generation, Tip: tip, Added: one.row.Added}
			one.Remembered = tip
		}
	}
	return nil
}

// begin records the generation of a stream that MySQL has no generation of yet.
func (s *streams) begin(ctx context.Context, partition int) error {
	generation, err := s.scripts.NewGeneration(ctx, partition)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	err = sqlstore.Retry(ctx, func() error {
		row := models.StreamRecord{
			Partition: partition, Generation: generation, Tip: lua.EntryID{}.String(), TipAt: time.Unix(0, 0).UTC(), OffsetID: models.NoEntry,
			CompleteAt: time.Unix(0, 0).UTC(),
		}
		err := s.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error // the writer may have made it
		if err != nil {
			return err
		}
		return sqlstore.On(s.db.WithContext(ctx)).Run("UPDATE streams SET birth = ?, tip = ? WHERE partition_no = ? AND birth = ''",
			generation, row.Tip, partition)
	})
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// record records how far an intact stream is, if that is what is to be done, and since when MySQL has every claim of it.
func (s *streams) record(ctx context.Context, seen *observed) error {
	partition := seen.row.Partition
	seen.Watching = true
	seen.UnbookedMoved = seen.row.OffsetID == seen.stream.Tip.String() && seen.row.CompleteAt.Before(seen.row.TipAt)
	if recovery.PlanPartition(&seen.Partition).Action != recovery.RecordStream {
		return nil
	}
	tip := seen.stream.Tip.String()
	err := sqlstore.On(s.db.WithContext(ctx)).Run("UPDATE streams SET tip = ?, added = ?, tip_at = ?,"+
		" complete_at = CASE WHEN offset_id = ? THEN ? ELSE complete_at END WHERE partition_no = ? AND birth = ? AND tip = ?",
		tip, seen.stream.Added, seen.stream.At, tip, seen.stream.At, partition, seen.row.Generation, seen.row.Tip)
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// Intact returns the partitions of which neither server lost data, as far as is known now. An error says why others are not among them.
func (h *Hydrator) Intact(ctx context.Context, partitions []int) (intact []int, err error) {
	all, err := h.streams.observe(ctx, partitions...)
	failed := []error{err}
	for i := range all {
		one := &all[i]
		step := recovery.PlanPartition(&one.Partition)
		switch {
		case one.err != nil:
			failed = append(failed, one.err)
		case step.Action == recovery.WaitReplica, step.Action == recovery.StopPartition:
			failed = append(failed, fmt.Errorf("%w: partition %d: %s", campaigns.ErrLost, one.row.Partition, step.Action))
		default:
			intact = append(intact, one.row.Partition)
		}
	}
	return intact, errors.Join(failed...)
}

// see records in MySQL that a load of a campaign or shard had so many claims.
func (s *streams) see(ctx context.Context, id string, at lua.Position) error {
	return sqlstore.On(s.db.WithContext(ctx)).Run("UPDATE lots SET seen_seq = ? WHERE id = ? AND epoch = ? AND seen_seq < ?",
		at.Seq, id, at.Epoch, at.Seq)
}

// madeAt is when a UUIDv7 was made.
func madeAt(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime())
}
