package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"

	"github.com/google/uuid"
)

const (
	// flushRetention is for how long every row of stock_flushes is there; the pruner leaves the newest of a campaign for good.
	flushRetention = 6 * 24 * time.Hour
	// idleShort is a time in which no campaign is claimed from and evicted again, unless DIBS_IDLE_EVICT is shorter.
	idleShort = 10 * time.Second
)

// FlushLog has Redis remember which flushes MySQL committed. It implements writer.Witness.
type FlushLog struct{ streams streams }

// NewFlushLog makes a witness for the campaigns that a hydrator loads.
func NewFlushLog(h *Hydrator) *FlushLog { return &FlushLog{streams: h.streams} }

// Flushes are flushes that MySQL committed, the last of the partitions of some campaigns. Errors: those of lua.Scripts.
func (w *FlushLog) Flushes(ctx context.Context, campaignIDs []string) ([]string, error) {
	all, errs := w.streams.committed(ctx, w.partitionsOf(campaignIDs)...)
	var ids []string
	for i := range all {
		ids = append(ids, all[i].Flushes...)
	}
	return ids, errors.Join(errs...)
}

// RecordFlushes remembers flushes by campaign; of those of a partition it takes the last. Errors: those of lua.Scripts.
func (w *FlushLog) RecordFlushes(ctx context.Context, byCampaign map[string]string) error {
	last := make(map[int]string)
	for campaignID, id := range byCampaign {
		p := lua.PartitionOf(campaignID, w.streams.scripts.Partitions())
		last[p] = max(last[p], id)
	}
	return w.streams.scripts.RecordFlushes(ctx, last)
}

// RolledBack takes the campaigns of partitions out of use of which MySQL lacks flushes. Errors: those of lua.Scripts and of the database.
func (w *FlushLog) RolledBack(ctx context.Context, campaignIDs []string) error {
	for _, p := range w.partitionsOf(campaignIDs) {
		if _, err := w.streams.intact(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *FlushLog) partitionsOf(campaignIDs []string) (all []int) {
	for _, id := range campaignIDs {
		all = append(all, lua.PartitionOf(id, w.streams.scripts.Partitions()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// committed is what MySQL has of some partitions, unless it was rolled back. Older flushes than the newest may be pruned.
func (s *streams) committed(ctx context.Context, partitions ...int) (all []lua.Committed, errs []error) {
	all, errs = s.scripts.Committed(ctx, partitions...)
	for i := range all {
		all[i].Flushes = keptFlushes(all[i].Flushes)
	}
	return all, errs
}

// madeAt is when a UUIDv7 was made.
func madeAt(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime())
}

// rollback says how a MySQL was rolled back, and whether campaigns may have been claimed from and evicted since.
type rollback struct {
	reason string
	isLong bool
}

// rollbackOf describes what MySQL lacks although, as Redis remembers, it had committed it.
func (s *streams) rollbackOf(ctx context.Context, seen *observed) (*rollback, error) {
	if len(seen.lacking) == 0 {
		return &rollback{reason: fmt.Sprintf("%s: it had recorded the claim stream up to %s, and has it up to %s", campaigns.MySQLRolledBack,
			seen.Remembered, seen.Recorded.Tip)}, nil
	}
	var newest string
	if err := sqlstore.On(s.db.WithContext(ctx)).Scan(&newest, "SELECT COALESCE(MAX(id), '') FROM stock_flushes"); err != nil {
		return nil, fmt.Errorf("residency: stream %d: %w", seen.row.Partition, err)
	}
	from := madeAt(slices.Max(seen.lacking))
	to := time.Time{}
	if newest != "" {
		to = madeAt(newest)
	}
	return &rollback{
		reason: fmt.Sprintf("%s: redis knows of a flush at %s, the newest that mysql has is of %s", campaigns.MySQLRolledBack,
			from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano)),
		isLong: from.Sub(to) > idleShort,
	}, nil
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

// fenceAfterRollback fences every campaign of a partition that Redis holds by any load, and returns those whose claims MySQL may lack:
// these, those that are resident by MySQL, and after more than a moment also those that may have been loaded and evicted since.
func (s *streams) fenceAfterRollback(ctx context.Context, partition int, found *rollback) (suspect []string, err error) {
	fetch := campaigns.Lots(ctx, s.db, lua.MaxFences, "id, epoch, synced_seq, residency, status, starts_at", "`partition` = ?", partition)
	for page, err := range sqlstore.Pages(campaigns.ID, fetch) {
		if err != nil {
			return nil, err
		}
		loads := make(map[string]int64, len(page))
		for i := range page {
			loads[page[i].ID] = lua.AnyLoad
		}
		held, err := s.scripts.FenceAll(ctx, loads)
		if err == nil {
			err = s.seeHeld(ctx, page, held)
		}
		if err != nil {
			return nil, err
		}
		for i := range page {
			c := &page[i]
			away := c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyNone
			untouched := c.Status == models.StatusClosed || c.StartsAt != nil && c.StartsAt.After(time.Now())
			if slices.Contains(held, c.ID) || !away || found.isLong && !untouched {
				suspect = append(suspect, c.ID)
			}
		}
	}
	return suspect, nil
}

// seeHeld records how many claims Redis holds of lots of which MySQL has fewer rows: Redis may lose them before the rows are restored.
func (s *streams) seeHeld(ctx context.Context, page []models.Campaign, held []string) error {
	positions, err := s.scripts.Positions(ctx, held)
	for i := 0; i < len(held) && err == nil; i++ {
		at := slices.IndexFunc(page, func(c models.Campaign) bool { return c.ID == held[i] })
		if positions[i].Epoch == page[at].Epoch && positions[i].Seq > page[at].SyncedSeq {
			err = s.see(ctx, held[i], positions[i])
		}
	}
	return err
}

// stopWithoutRecord takes what Redis holds of a partition out of use, because MySQL has no record of the claim stream.
func (s *streams) stopWithoutRecord(ctx context.Context, seen *observed) error {
	found := &rollback{reason: fmt.Sprintf("%s: it has no record of the claim stream, which has had %d entries", campaigns.MySQLRolledBack,
		seen.Stream.Added)}
	suspect, err := s.fenceAfterRollback(ctx, seen.row.Partition, found)
	if err != nil {
		return err
	}
	return s.recordLost(ctx, suspect, "", found.reason)
}

// stopAfterRollback takes the campaigns of a partition out of use because MySQL was rolled back, and gives the stream a new generation: it
// proves nothing any more about what was loaded before. Redis forgets the flushes last: if this process dies before, the next one goes on.
func (s *streams) stopAfterRollback(ctx context.Context, seen *observed) error {
	partition := seen.row.Partition
	found, err := s.rollbackOf(ctx, seen)
	if err != nil {
		return err
	}
	var suspect []string
	renewed, err := s.newGeneration(ctx, &seen.row, func() (_ string, err error) {
		suspect, err = s.fenceAfterRollback(ctx, partition, found)
		if err != nil {
			return "", err
		}
		return found.reason, s.recordLost(ctx, suspect, seen.row.Generation, found.reason)
	})
	if err != nil || !renewed {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelError, "mysql was restored: campaigns of the partition take no claims until their rows are restored"+
		" from redis; what was redeemed, changed or created since then is lost unless the binary log is rolled forward",
		slog.Int("partition", partition), slog.String("reason", found.reason), slog.Int("stopped", len(suspect)))
	return s.scripts.ForgetCommitted(ctx, partition)
}
