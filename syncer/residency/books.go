package residency

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
)

const (
	// flushesSure is for how long every row of stock_flushes is there; the pruner leaves the newest of a campaign for good.
	flushesSure = 6 * 24 * time.Hour
	// booksTries looks, booksPause apart, tell a MySQL that was put back from a replica that lags.
	booksTries = 4
	booksPause = 100 * time.Millisecond
	// idleShort is a time in which no campaign is claimed from and evicted again, unless DIBS_IDLE_EVICT is shorter.
	idleShort = 10 * time.Second
)

// Witness has Redis remember which flushes MySQL committed. It implements writer.Witness.
type Witness struct{ streams streams }

// NewWitness makes a witness for the campaigns that a hydrator loads.
func NewWitness(h *Hydrator) *Witness { return &Witness{streams: h.streams} }

// Flushes are flushes that MySQL committed, the last of the partitions of some campaigns. Errors: those of lua.Scripts.
func (w *Witness) Flushes(ctx context.Context, campaignIDs []string) ([]string, error) {
	all, err := w.streams.committed(ctx, w.partitionsOf(campaignIDs)...)
	var ids []string
	for i := range all {
		ids = append(ids, all[i].Flushes...)
	}
	return ids, err
}

// RecordFlushes remembers flushes by campaign; of those of a partition it takes the last. Errors: those of lua.Scripts.
func (w *Witness) RecordFlushes(ctx context.Context, byCampaign map[string]string) error {
	last := make(map[int]string)
	for campaignID, id := range byCampaign {
		p := lua.PartitionOf(campaignID, w.streams.scripts.Partitions())
		last[p] = max(last[p], id)
	}
	return w.streams.scripts.RecordFlushes(ctx, last)
}

// WentBack takes the campaigns of partitions out of use of which MySQL lacks flushes. Errors: those of lua.Scripts and of the database.
func (w *Witness) WentBack(ctx context.Context, campaignIDs []string) error {
	for _, p := range w.partitionsOf(campaignIDs) {
		if _, err := w.streams.intact(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *Witness) partitionsOf(campaignIDs []string) (all []int) {
	for _, id := range campaignIDs {
		all = append(all, lua.PartitionOf(id, w.streams.scripts.Partitions()))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// committed is what MySQL has of some partitions, unless it went back. Older flushes than the newest may be pruned.
func (s *streams) committed(ctx context.Context, partitions ...int) (all []lua.Committed, err error) {
	all, err = s.scripts.Committed(ctx, partitions...)
	sure := time.Now().Add(-flushesSure)
	for i := range all {
		if len(all[i].Flushes) > 0 {
			newest := slices.Max(all[i].Flushes)
			all[i].Flushes = slices.DeleteFunc(all[i].Flushes, func(id string) bool { return id != newest && madeAt(id).Before(sure) })
		}
	}
	return all, err
}

// madeAt is when a UUIDv7 was made.
func madeAt(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime())
}

// putBack says how a MySQL went back, and whether campaigns may have been claimed from and evicted since; nil: it did not.
type putBack struct {
	reason string
	long   bool
}

// booksBehind reports whether MySQL lacks what it had committed of a partition. Redis is asked first: what it knows of was committed before.
func (s *streams) booksBehind(ctx context.Context, partition int) (*putBack, error) {
	all, err := s.committed(ctx, partition)
	if err != nil || len(all[0].Flushes) == 0 && all[0].Tip == (lua.EntryID{}) {
		return nil, err
	}
	for try := 1; ; try++ {
		back, err := s.lacks(ctx, all[0].Flushes, map[int]lua.EntryID{partition: all[0].Tip})
		if err != nil {
			return nil, fmt.Errorf("residency: books of stream %d: %w", partition, err)
		}
		if back == nil || try == booksTries {
			return back, nil
		}
		if err := sleep.For(ctx, booksPause); err != nil {
			return nil, err
		}
	}
}

// lacks compares MySQL with what Redis knows that it committed: flushes, and how far it had recorded streams.
func (s *streams) lacks(ctx context.Context, flushes []string, tips map[int]lua.EntryID) (*putBack, error) {
	var there int
	if len(flushes) > 0 {
		if err := sqlstore.On(s.db.WithContext(ctx)).Scan(&there, "SELECT COUNT(*) FROM stock_flushes WHERE id IN ?", flushes); err != nil {
			return nil, err
		}
	}
	if there < len(flushes) {
		return s.lacksFlushes(ctx, flushes)
	}
	var rows []models.StreamRecord
	if err := s.db.WithContext(ctx).Omit("unbooked").Where("`partition` IN ?", slices.Collect(maps.Keys(tips))).Find(&rows).Error; err != nil {
		return nil, err
	}
	for i := range rows {
		has, err := recorded(&rows[i])
		if err != nil {
			return nil, err
		}
		if known := tips[rows[i].Partition]; has.Tip.Less(known) {
			return &putBack{reason: fmt.Sprintf("%s: it had recorded the claim stream up to %s, and has it up to %s", campaigns.MySQLWentBack,
				known, has.Tip)}, nil
		}
	}
	return nil, nil //nolint:nilnil // it lacks none
}

func (s *streams) lacksFlushes(ctx context.Context, ids []string) (*putBack, error) {
	var newest string
	if err := sqlstore.On(s.db.WithContext(ctx)).Scan(&newest, "SELECT COALESCE(MAX(id), '') FROM stock_flushes"); err != nil {
		return nil, err
	}
	from := madeAt(slices.Max(ids))
	to := time.Time{}
	if newest != "" {
		to = madeAt(newest)
	}
	return &putBack{
		reason: fmt.Sprintf("%s: redis knows of a flush at %s, the newest that mysql has is of %s", campaigns.MySQLWentBack,
			from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano)),
		long: from.Sub(to) > idleShort,
	}, nil
}

// RequireBooks fails when MySQL lacks what it had committed of any partition, so that nothing is decided by it before Watch has seen it.
func (w *StreamWatcher) RequireBooks(ctx context.Context) error {
	partitions := make([]int, w.streams.scripts.Partitions())
	for p := range partitions {
		partitions[p] = p
	}
	all, err := w.streams.committed(ctx, partitions...)
	if err != nil {
		return err
	}
	var flushes []string
	tips := make(map[int]lua.EntryID)
	for p := range all {
		flushes = append(flushes, all[p].Flushes...)
		tips[p] = all[p].Tip
	}
	back, err := w.streams.lacks(ctx, flushes, tips)
	if err != nil {
		return fmt.Errorf("residency: books: %w", err)
	}
	if back != nil {
		return fmt.Errorf("%w: %s", campaigns.ErrLost, back.reason)
	}
	return nil
}

// booksIntact looks whether MySQL was put back, and takes the campaigns of the partition out of use if so.
func (s *streams) booksIntact(ctx context.Context, row *models.StreamRecord) (back bool, err error) {
	found, err := s.booksBehind(ctx, row.Partition)
	if err != nil || found == nil {
		return false, err
	}
	return true, s.restored(ctx, row, found)
}

// stopForBooks fences every campaign of a partition that Redis holds by any load, and returns those whose claims MySQL may lack: these,
// those that are resident by its books, and after more than a moment also those that may have been loaded and evicted since.
func (s *streams) stopForBooks(ctx context.Context, partition int, back *putBack) (suspect []string, err error) {
	fetch := campaigns.Lots(ctx, s.db, lua.FencesMost, "id, residency, status, starts_at", "`partition` = ?", partition)
	for page, err := range sqlstore.Pages(lua.FencesMost, campaigns.ID, fetch) {
		if err != nil {
			return nil, err
		}
		loads := make(map[string]int64, len(page))
		for i := range page {
			loads[page[i].ID] = lua.AnyLoad
		}
		held, err := s.scripts.FenceAll(ctx, loads)
		if err != nil {
			return nil, err
		}
		for i := range page {
			c := &page[i]
			away := c.Residency == models.ResidencyEvicted || c.Residency == models.ResidencyNone
			untouched := c.Status == models.StatusClosed || c.StartsAt != nil && c.StartsAt.After(time.Now())
			if slices.Contains(held, c.ID) || !away || back.long && !untouched {
				suspect = append(suspect, c.ID)
			}
		}
	}
	return suspect, nil
}

// restored takes the campaigns of a partition out of use because MySQL was put back, and gives the stream a new generation: it proves
// nothing any more about what was loaded before. Redis forgets the flushes last: if this process dies before, the next one goes on.
func (s *streams) restored(ctx context.Context, old *models.StreamRecord, back *putBack) error {
	stop := func() (string, int64, error) {
		suspect, err := s.stopForBooks(ctx, old.Partition, back)
		if err != nil {
			return "", 0, err
		}
		loss := back.reason
		s.log.LogAttrs(ctx, slog.LevelError, "mysql was put back: campaigns of the partition take no claims until their rows are brought back"+
			" from redis; what was redeemed, changed or created since then is lost unless the binary log is rolled forward",
			slog.Int("partition", old.Partition), slog.String("reason", loss), slog.Int("stopped", len(suspect)))
		return loss, 0, s.recordLost(ctx, suspect, loss)
	}
	if err := s.newGeneration(ctx, old, stop); err != nil {
		return err
	}
	return s.scripts.ForgetCommitted(ctx, old.Partition)
}
