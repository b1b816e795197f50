package residency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"

	"github.com/google/uuid"
)

const (
	// flushesSure is for how long every row of stock_flushes is there; the pruner leaves the newest of a campaign for good.
	flushesSure = 6 * 24 * time.Hour
	// booksTries looks, booksPause apart, tell a MySQL that was put back from a replica that lags.
	booksTries, booksPause = 4, 100 * time.Millisecond
	// idleShort is a time in which no campaign is claimed from and evicted again, unless DIBS_IDLE_EVICT is shorter.
	idleShort = 10 * time.Second
)

// MySQLWentBack begins the reason of a campaign that is lost because MySQL was put back.
const MySQLWentBack = "mysql went back"

// Witness has Redis remember which flushes MySQL committed. It implements writer.Witness.
type Witness struct{ streams streams }

// NewWitness makes a witness for the campaigns that a hydrator loads.
func NewWitness(h *Hydrator) *Witness { return &Witness{streams: h.streams} }

// Flushes are flushes that MySQL committed, the last of the partitions of some campaigns. Errors: those of lua.Scripts.
func (w *Witness) Flushes(ctx context.Context, campaignIDs []string) ([]string, error) {
	return w.streams.flushes(ctx, w.partitionsOf(campaignIDs)...)
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

// flushes are flushes of some partitions whose rows MySQL has, unless it went back. Older ones than the newest may be pruned.
func (s *streams) flushes(ctx context.Context, partitions ...int) ([]string, error) {
	ids, err := s.scripts.Flushes(ctx, partitions...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	newest, sure := slices.Max(ids), time.Now().Add(-flushesSure)
	return slices.DeleteFunc(ids, func(id string) bool { return id != newest && madeAt(id).Before(sure) }), nil
}

// madeAt is when a UUIDv7 was made.
func madeAt(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime())
}

// putBack says how far a MySQL went back that lacks flushes of a partition; nil: it lacks none.
type putBack struct{ from, to time.Time }

func (b *putBack) String() string {
	return fmt.Sprintf("%s: redis knows of a flush at %s, the newest that mysql has is of %s", MySQLWentBack,
		b.from.UTC().Format(time.RFC3339Nano), b.to.UTC().Format(time.RFC3339Nano))
}

// booksBehind tells whether MySQL lacks flushes of a partition that it had committed. Redis is asked first: what it knows of was
// committed before.
func (s *streams) booksBehind(ctx context.Context, partition int) (*putBack, error) {
	ids, err := s.flushes(ctx, partition)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	for try := 1; ; try++ {
		var there int
		if err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM stock_flushes WHERE id IN ?", ids).Scan(&there).Error; err != nil {
			return nil, fmt.Errorf("residency: flushes of stream %d: %w", partition, err)
		}
		if there == len(ids) {
			return nil, nil //nolint:nilnil // it lacks none
		}
		if try == booksTries {
			break
		}
		if err := sleep.For(ctx, booksPause); err != nil {
			return nil, err
		}
	}
	back := &putBack{from: madeAt(slices.Max(ids))}
	var newest string
	if err := s.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(id), '') FROM stock_flushes").Scan(&newest).Error; err != nil {
		return nil, fmt.Errorf("residency: flushes of stream %d: %w", partition, err)
	}
	if newest != "" {
		back.to = madeAt(newest)
	}
	return back, nil
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
	long := back.from.Sub(back.to) > idleShort
	key := func(c *suspectRow) string { return c.ID }
	fetch := sqlstore.Merged(lua.FencesMost, key, models.BooksTables, func(table, after string) (page []suspectRow, err error) {
		err = s.db.WithContext(ctx).Raw("SELECT id, residency, COALESCE(status = ? OR starts_at > ?, 0) AS untouched FROM "+table+
			" WHERE id > ? AND `partition` = ? ORDER BY id LIMIT ?",
			models.StatusClosed, sqlstore.Now(), after, partition, lua.FencesMost).Scan(&page).Error
		if err != nil {
			err = fmt.Errorf("residency: campaigns of stream %d: %w", partition, err)
		}
		return page, err
	})
	for page, err := range sqlstore.Pages(lua.FencesMost, key, fetch) {
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
			if slices.Contains(held, c.ID) || !away || long && !c.Untouched {
				suspect = append(suspect, c.ID)
			}
		}
	}
	return suspect, nil
}

// suspectRow is a campaign that may have more claims than MySQL knows of.
type suspectRow struct {
	ID        string
	Residency models.Residency
	Untouched bool // it can't have been claimed from
}

// restored takes the campaigns of a partition out of use because MySQL was put back, and gives the stream a new generation: it proves
// nothing any more about what was loaded before. Redis forgets the flushes last: if this process dies before, the next one goes on.
func (s *streams) restored(ctx context.Context, old *models.StreamRecord, back *putBack) error {
	stop := func() (string, error) {
		suspect, err := s.stopForBooks(ctx, old.Partition, back)
		if err != nil {
			return "", err
		}
		loss := back.String()
		s.log.LogAttrs(ctx, slog.LevelError, "mysql was put back: campaigns of the partition take no claims until their rows are brought back"+
			" from redis; what was redeemed, changed or created since then is lost unless the binary log is rolled forward",
			slog.Int("partition", old.Partition), slog.String("reason", loss), slog.Int("stopped", len(suspect)))
		if err := s.recordLost(ctx, suspect, loss); err != nil {
			return "", err
		}
		return loss, s.rename(ctx, suspect, loss)
	}
	if err := s.newGeneration(ctx, old, stop); err != nil {
		return err
	}
	return s.scripts.ForgetFlushes(ctx, old.Partition)
}

// rename gives campaigns that were found to be lost a moment before, because MySQL and Redis know different loads, the reason for that.
func (s *streams) rename(ctx context.Context, ids []string, reason string) error {
	for some := range slices.Chunk(ids, lua.FencesMost) {
		for _, table := range models.BooksTables {
			err := s.db.WithContext(ctx).Exec("UPDATE "+table+" SET residency_reason = ? WHERE id IN ? AND residency = ?"+
				" AND (residency_reason LIKE ? OR residency_reason LIKE ?)",
				reason, some, models.ResidencyLost, "%"+mysqlKnowsLoad+"%", notHeld+"%").Error
			if err != nil {
				return fmt.Errorf("residency: campaigns in redis: %w", err)
			}
		}
	}
	return nil
}
