package residency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/recovery"

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

// observed is what was read of a claim stream: first what Redis remembers of MySQL's commits, then MySQL, then Redis.
type observed struct {
	recovery.Partition

	row         models.StreamRecord // without the unbooked claims
	hasUnbooked bool                // the row names some
	lacking     []string            // flushes that Redis remembers, if MySQL lacks any of them
	stream      lua.Stream
	isNew       bool // its generation was made just now
	err         error
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

// stopPartition takes campaigns of a stream out of use: those about which the stream, or MySQL, no longer proves anything.
func (s *streams) stopPartition(ctx context.Context, seen *observed) error {
	if !seen.Known || seen.IsMySQLBehind() { // unless it was a replica that lags
		if err := sqlstore.CheckReads(ctx, s.db); err != nil {
			return fmt.Errorf("residency: stream %d: %w", seen.row.Partition, err)
		}
	}
	switch {
	case !seen.Known: // MySQL is of a time before it had the stream
		if err := s.stopWithoutRecord(ctx, seen); err != nil {
			return err
		}
		return s.begin(ctx, seen.row.Partition)
	case seen.IsMySQLBehind():
		return s.stopAfterRollback(ctx, seen)
	}
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
	remembered, rememberedErrs := s.committed(ctx, partitions...)
	all := make([]observed, len(partitions))
	if err := s.readMySQL(ctx, partitions, remembered, all); err != nil {
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
		if err := cmp.Or(rememberedErrs[i], errs[i]); err != nil { //nolint:gosec // one each
			one.err = fmt.Errorf("residency: stream %d: %w", partitions[i], err)
		}
	}
	return all, nil
}

// readMySQL reads what MySQL has of some partitions, and which of the flushes that Redis remembers it lacks.
func (s *streams) readMySQL(ctx context.Context, partitions []int, remembered []lua.Committed, all []observed) error {
	var rows []struct {
		models.StreamRecord

		HasUnbooked bool
	}
	err := s.db.WithContext(ctx).Model(&models.StreamRecord{}).
		Select("`partition`, birth, tip, tip_at, added, loss, unexplained, COALESCE(unbooked, '') <> '' AS has_unbooked").
		Where("`partition` IN ?", partitions).Find(&rows).Error
	if err != nil {
		return err
	}
	for i, partition := range partitions {
		one := &all[i]
		one.Remembered = remembered[i].Tip
		for j := range rows {
			if rows[j].Partition != partition {
				continue
			}
			tip, err := lua.ParseEntryID(rows[j].Tip)
			if err != nil {
				return fmt.Errorf("partition %d: %w", partition, err)
			}
			one.Known = true
			one.row = rows[j].StreamRecord
			one.hasUnbooked = rows[j].HasUnbooked
			one.Recorded = lua.StreamPosition{Generation: one.row.Generation, Tip: tip, Added: one.row.Added}
		}
	}
	var flushes []string
	for i := range remembered {
		flushes = append(flushes, remembered[i].Flushes...)
	}
	if len(flushes) == 0 {
		return nil
	}
	var there []string
	if err := s.db.WithContext(ctx).Table("stock_flushes").Where("id IN ?", flushes).Pluck("id", &there).Error; err != nil {
		return err
	}
	for i := range remembered {
		lacking := slices.DeleteFunc(slices.Clone(remembered[i].Flushes), func(id string) bool { return slices.Contains(there, id) })
		all[i].Lacking = len(lacking)
		all[i].lacking = lacking
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
		row := models.StreamRecord{Partition: partition, Generation: generation, Tip: lua.EntryID{}.String(), TipAt: time.Unix(0, 0).UTC()}
		return s.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error
	})
	if err != nil {
		return fmt.Errorf("residency: stream %d: %w", partition, err)
	}
	return nil
}

// record records how far an intact stream is, and which of its claims MySQL lacks, if that is what is to be done.
func (s *streams) record(ctx context.Context, seen *observed) error {
	partition := seen.row.Partition
	fail := func(err error) error { return fmt.Errorf("residency: stream %d: %w", partition, err) }
	unbooked := ""
	// Else nothing came that MySQL might lack. Redis forgets the record with a new generation, which has none of those that are on their way.
	if seen.Stream != seen.Recorded || seen.Remembered != seen.Recorded.Tip || seen.hasUnbooked {
		var err error
		unbooked, err = s.readUnbooked(ctx, seen)
		if err != nil {
			return fail(err)
		}
	}
	seen.Watching = true
	seen.UnbookedMoved = unbooked != "" || seen.hasUnbooked
	if recovery.PlanPartition(&seen.Partition).Action != recovery.RecordStream {
		return nil
	}
	tip := seen.stream.Tip.String()
	changed, err := sqlstore.On(s.db.WithContext(ctx)).Exec("UPDATE streams SET tip = ?, added = ?, tip_at = ?, unbooked = ?"+
		" WHERE `partition` = ? AND birth = ? AND tip = ?",
		tip, seen.stream.Added, seen.stream.At, unbooked, partition, seen.row.Generation, seen.row.Tip)
	if err != nil {
		return fail(err)
	}
	if changed == 0 || seen.Remembered == seen.stream.Tip { // another was faster, or Redis remembers it: a new generation had it forget
		return nil
	}
	return s.scripts.RecordTip(ctx, partition, seen.stream.Tip)
}
