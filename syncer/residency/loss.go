package residency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// renew stops the campaigns of a stream that lost entries, counts what was lost, and gives the stream a new generation.
func (s *streams) renew(ctx context.Context, old *models.StreamRecord, known lua.StreamPosition, why string) error {
	partition := old.Partition
	var stopped []string
	var lost int64
	var loss string
	renewed, err := s.newGeneration(ctx, old, func() (_ string, err error) {
		stopped, err = s.stopAll(ctx, partition)
		if err != nil {
			return "", err
		}
		stream, err := s.scripts.Stream(ctx, partition)
		if err != nil {
			return "", err
		}
		lost, err = s.countLost(ctx, partition, known, &stream)
		if err != nil {
			return "", err
		}
		loss = fmt.Sprintf("redis was rolled back: %s; it lost %d entries of the stream; claims answered from %s to %s are known only as far as"+
			" API processes reported them", why, lost, old.TipAt.UTC().Format(time.RFC3339Nano), time.Now().UTC().Format(time.RFC3339Nano))
		return loss, s.recordLost(ctx, stopped, old.Generation, loss)
	})
	if renewed {
		s.lost.Add(float64(lost))
		s.log.LogAttrs(ctx, slog.LevelError, "claims may be lost: the campaigns of the partition that were in redis take none until"+
			" `dibs reconcile --repair` rebuilds them",
			slog.Int("partition", partition), slog.String("reason", loss), slog.Int64("lost_entries", lost), slog.Int("stopped", len(stopped)))
	}
	return err
}

// newGeneration gives a stream a new generation, after stop has taken the campaigns out of use that it proves nothing about any more
// and returned why. Several processes may do all of this at the same time: the first
// one that changes MySQL's row has its change committed if Redis, which still has the generation from before the stop, takes the new one.
// renewed is false for the others. If the process dies in between, MySQL and Redis differ, and the next one renews the stream again.
func (s *streams) newGeneration(
	ctx context.Context, old *models.StreamRecord, stop func() (loss string, err error),
) (renewed bool, err error) {
	partition := old.Partition
	defer func() {
		if err != nil {
			renewed = false
			err = fmt.Errorf("residency: stream %d: %w", partition, err)
		}
	}()
	var row models.StreamRecord
	if err := s.db.WithContext(ctx).Where("partition_no = ?", partition).Take(&row).Error; err != nil {
		return false, err
	}
	if row.Generation != old.Generation {
		return false, nil // another was faster
	}
	before, err := s.scripts.Stream(ctx, partition)
	if err != nil {
		return false, err
	}
	loss, err := stop()
	if err != nil {
		return false, err
	}
	generation, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	stream, err := s.scripts.Stream(ctx, partition)
	if err != nil {
		return false, err
	}
	err = sqlstore.InTx(ctx, s.db, func(tx *sqlstore.Tx) error {
		changed, err := sqlstore.Exec(ctx, tx, "UPDATE streams SET birth = ?, tip = ?, added = ?, tip_at = ?, loss = ?"+
			" WHERE partition_no = ? AND birth = ?",
			generation.String(), stream.Tip.String(), stream.Added, stream.At, sqlstore.Cut(loss, models.ReasonLength),
			partition, old.Generation)
		if err != nil || changed == 0 {
			return err
		}
		renewed = true
		return s.scripts.ReplaceGeneration(ctx, partition, before.Generation, generation.String())
	})
	return renewed, err
}

// countLost counts the entries that a stream is known to have had and lost: how many fewer it has ever had, plus those that came since.
func (s *streams) countLost(ctx context.Context, partition int, known lua.StreamPosition, stream *lua.Stream) (int64, error) {
	lost := known.Added - stream.Added
	for from := known.Tip.Next(); !stream.Tip.Less(from); {
		entries, err := s.scripts.Entries(ctx, partition, from, lua.MaxFences)
		if err != nil {
			return 0, err
		}
		lost += int64(len(entries))
		if len(entries) < lua.MaxFences {
			break
		}
		from = entries[len(entries)-1].ID.Next()
	}
	return max(0, lost), nil
}

// stopAll fences every campaign of a partition that Redis holds, wherever it is by its books, and returns those.
func (s *streams) stopAll(ctx context.Context, partition int) (stopped []string, err error) {
	fetch := campaigns.Lots(ctx, s.db, lua.MaxFences, "id, epoch", "partition_no = ? AND epoch > 0", partition)
	for page, err := range sqlstore.Pages(campaigns.ID, fetch) {
		if err != nil {
			return nil, err
		}
		fenced, err := s.stop(ctx, page)
		if err != nil {
			return nil, err
		}
		stopped = append(stopped, fenced...)
	}
	return stopped, nil
}

// stop fences those of some campaigns that Redis holds by the load that MySQL knows, or an earlier one, and returns those.
func (s *streams) stop(ctx context.Context, page []models.Campaign) (stopped []string, err error) {
	epochs := make(map[string]int64, len(page))
	for i := range page {
		epochs[page[i].ID] = page[i].Epoch
	}
	return s.scripts.FenceAll(ctx, epochs)
}

// recordLost records that campaigns are lost; Redis takes no claims for them any more. One that was lost before keeps its reason, unless
// that names an effect of the same cause: another process observed it between the fence and this. Nothing is recorded once the stream has
// another generation than the one given, unless that is "".
func (s *streams) recordLost(ctx context.Context, ids []string, generation, reason string) error {
	for some := range slices.Chunk(ids, lua.MaxFences) {
		err := sqlstore.On(s.db.WithContext(ctx)).Run("UPDATE lots SET residency = ?, residency_reason = ?, residency_at = ?"+
			" WHERE id IN ? AND (residency <> ? OR residency_reason LIKE ? OR residency_reason LIKE ? OR residency_reason LIKE ?)"+
			" AND ? IN ('', (SELECT birth FROM streams WHERE streams.partition_no = lots.partition_no))",
			models.ResidencyLost, sqlstore.Cut(reason, models.ReasonLength), sqlstore.Now(), some,
			models.ResidencyLost, notHeld+"%", isFenced+"%", "%"+mysqlKnowsLoad+"%", generation)
		if err != nil {
			return fmt.Errorf("residency: campaigns in redis: %w", err)
		}
	}
	return nil
}
