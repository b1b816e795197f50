package residency

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dibs/internal/migrations"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/recovery"
	"dibs/syncer/writer"
)

// lot is what was observed of a lot: first MySQL, by one statement, then Redis, in one round trip.
type lot struct {
	recovery.Lot

	row       lotRow
	view      lua.LotView
	policy    recovery.Policy    // of the run
	isChanged bool               // its definition, since it was observed
	partition recovery.Partition // but for what Redis remembers of MySQL, which a load compares
}

// lotRow is what MySQL has of a lot, of its campaign and of its claim stream.
type lotRow struct {
	models.Campaign `gorm:"embedded"`

	FenceTip         string
	Untold           int64 // releases that wait in outbox
	IsParked         bool  // there are parked events
	IsBlank          bool  // it has no claims and never had any
	IsLoading        bool  // another process loads it
	WholeTotal       int64 // of the campaign
	Birth, Tip, Loss string
	Added            int64
	OffsetID         string // how far MySQL has applied the claim stream
	IsWaiting        bool   // the counters lack some of that, see writer

	applied lua.EntryID // is OffsetID
}

const (
	firstNumber   = 1 // of a load: the first that MySQL hands out of a campaign
	withoutClaims = "lots.synced_seq = 0 AND lots.claimed = 0 AND lots.lost_claims = 0 AND lots.seen_seq = 0 AND lots.released_claims = 0" +
		" AND lots.archived_claims = 0 AND lots.archived_units = 0 AND lots.archived_released = 0" +
		" AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.campaign_id = lots.campaign_id AND claims.shard = lots.shard)" +
		" AND NOT EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id)"
)

// isInitial reports whether a step loads a campaign for the first time, of which there are no claims and no packets.
func (o *lot) isInitial(step recovery.Step) bool {
	return step.Action == recovery.Load && step.Epoch == firstNumber && o.row.IsBlank && o.row.Kind != models.KindPacket &&
		o.MySQL.Residency == models.ResidencyNone
}

// now and loaderTime are times of the database, whatever the clocks of processes say.
func (h *Hydrator) now() string {
	return h.inDialect("UTC_TIMESTAMP(3)", "STRFTIME('%Y-%m-%d %H:%M:%f', 'now')")
}

func (h *Hydrator) loaderTime() string {
	return h.inDialect("UTC_TIMESTAMP(3) + INTERVAL 5 SECOND", "STRFTIME('%Y-%m-%d %H:%M:%f', 'now', '+5 seconds')")
}

func (h *Hydrator) inDialect(mysql, sqlite string) string {
	if h.db.Name() == migrations.SQLite {
		return sqlite
	}
	return mysql
}

// observe reads lots, in any order. Those that MySQL does not have are left out. Errors: campaigns.ErrPartitions, those of lua.Scripts
// and of the database.
func (h *Hydrator) observe(ctx context.Context, ids ...string) ([]*lot, error) {
	var rows []lotRow
	err := h.db.WithContext(ctx).Table("defined_lots AS lots").Select("lots.*, (SELECT COUNT(*) FROM outbox WHERE outbox.campaign_id = lots.id AND"+
		" outbox.kind = ?) AS untold, EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id) AS is_parked, ("+
		withoutClaims+") AS is_blank, (o.loader <> '' AND o.loading_until > "+h.now()+") AS is_loading, w.total AS whole_total,"+
		" COALESCE(s.birth, '') AS birth, COALESCE(s.tip, '') AS tip, COALESCE(s.added, 0) AS added,"+
		" COALESCE(s.loss, '') AS loss, COALESCE(s.offset_id, '0-0') AS offset_id, EXISTS (SELECT 1 FROM stock_flushes f WHERE f.waiting = 1"+
		" AND f.campaign_id = lots.campaign_id AND f.shard = lots.shard) AS is_waiting", models.OutboxRelease).
		Joins("JOIN lots w ON w.campaign_id = lots.campaign_id AND w.shard = 0"+
			" JOIN lots o ON o.campaign_id = lots.campaign_id AND o.shard = lots.shard LEFT JOIN streams s ON s.partition_no = lots.partition_no").
		Where("lots.id IN ?", ids).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("residency: lots: %w", err)
	}
	all := make([]*lot, len(rows))
	found := make([]string, len(rows))
	tips := make(map[int]lua.EntryID)
	for i := range rows {
		c := &rows[i].Campaign
		if err := campaigns.SamePartition(c, h.scripts.Partitions()); err != nil {
			return nil, err
		}
		tips[c.Partition], err = lua.ParseEntryID(rows[i].Tip)
		if err == nil {
			rows[i].applied, err = lua.ParseEntryID(rows[i].OffsetID)
		}
		if err != nil {
			return nil, fmt.Errorf("residency: stream %d: %w", c.Partition, err)
		}
		found[i] = c.ID
	}
	views, err := h.scripts.Lots(ctx, found, tips)
	if err != nil {
		return nil, fmt.Errorf("residency: lots: %w", err)
	}
	for i := range rows {
		all[i] = &lot{row: rows[i], view: views[i]}
		all[i].setMySQL()
		all[i].setRedis()
		all[i].partition = recovery.Partition{
			Known: rows[i].Birth != "", Stream: views[i].Stream.StreamPosition,
			Recorded: lua.StreamPosition{Generation: rows[i].Birth, Tip: tips[rows[i].Partition], Added: rows[i].Added},
		}
		if rows[i].IsParked {
			parked, err := h.Parked(ctx, found[i])
			switch {
			case errors.Is(err, writer.ErrParked): // too many to read: this lot is not loaded, and the other lots are not affected
				all[i].Evidence.Displaced = 1
			case err != nil:
				return nil, err
			default:
				all[i].MySQL.ParkedClaims = parked.Claims
				all[i].Evidence.Displaced = parked.Displaced()
			}
		}
	}
	return all, nil
}

func (o *lot) setMySQL() {
	c := &o.row
	o.Found = true
	o.Generation = o.view.Stream.Generation
	o.MySQL = recovery.MySQL{
		Residency: c.Residency, IsRolledBack: strings.HasPrefix(c.ResidencyReason, campaigns.MySQLRolledBack), Epoch: c.Epoch,
		LoadAttempts: c.LoadAttempts, Generation: c.StreamGeneration, Version: c.Version, AppliedVersion: c.AppliedVersion,
		SyncedSeq: c.SyncedSeq, SeenSeq: c.SeenSeq, Claimed: c.Claimed, LostClaims: c.LostClaims, ReleasedClaims: c.ReleasedClaims,
		AppliedReleases: c.ReleasedClaims - c.Untold, ArchivedClaims: c.ArchivedClaims,
	}
	if generation, text, _ := strings.Cut(c.FenceTip, " "); generation == o.Generation && text != "" {
		if tip, err := lua.ParseEntryID(text); err == nil {
			o.setFenceTip(tip)
		}
	}
	o.IsLoading = c.IsLoading
}

func (o *lot) setFenceTip(tip lua.EntryID) {
	o.MySQL.FenceTip = &tip
	o.Acknowledged = o.isApplied(tip)
}

// isApplied reports whether MySQL has applied the claim stream up to an entry, and no sums of the lot wait.
func (o *lot) isApplied(id lua.EntryID) bool {
	return !o.row.IsWaiting && writer.IsApplied(o.row.applied, id, o.view.Stream.Tip)
}

func (o *lot) setRedis() {
	v := &o.view
	r := &o.Redis
	o.StreamTip = v.Stream.Tip
	o.Settled = o.isApplied(v.Stream.Tip)
	switch {
	case errors.Is(v.Err, lua.ErrAbsent):
		if v.Evicted.Epoch > 0 {
			r.Tombstone = &recovery.Tombstone{Epoch: v.Evicted.Epoch, Seq: v.Evicted.Seq}
		}
		return
	case v.Err != nil:
		r.Held = recovery.Damaged
		r.Status = models.Status(v.Status)
		r.At.Epoch = v.Epoch
		return
	}
	state := &v.State
	r.Held = recovery.Present
	r.Status = state.Status
	r.At = state.Position()
	r.LacksPushed = o.lacksPushed(state)
	// A copy never took claims, so one of a lot that is away can be opened if it is what MySQL has.
	c := &o.row
	if state.Status == models.StatusLoading && c.Residency != models.ResidencyLost &&
		state.Seq == c.SyncedSeq && state.Taken == c.Claimed && state.Released == c.ReleasedClaims {
		r.Copy = &recovery.Copy{SyncedSeq: c.SyncedSeq, LostClaims: c.LostClaims, Generation: o.Generation}
	}
}

func (o *lot) lacksPushed(state *lua.State) bool {
	return o.row.Kind == models.KindPacket && state.Pushed < o.row.WholeTotal
}

// doubt says why a lot is not sound.
func (o *lot) doubt() string {
	m := &o.MySQL
	r := &o.Redis
	known := lua.Position{
		Epoch: m.Epoch, Seq: max(m.SyncedSeq, m.SeenSeq), Version: m.AppliedVersion, Released: m.AppliedReleases,
	}
	behind := r.At.Behind(known)
	switch {
	case o.IsBehindTombstone():
		t := r.Tombstone
		return fmt.Sprintf("%s: redis evicted load %d with %d claims, mysql has load %d with %d", campaigns.MySQLRolledBack, t.Epoch, t.Seq,
			m.Epoch, m.SyncedSeq)
	case o.Reported.Epoch > max(m.Epoch, m.LoadAttempts):
		return fmt.Sprintf("load %d was seen in redis, "+mysqlKnowsLoad+"%d", o.Reported.Epoch, m.Epoch)
	case m.Residency == models.ResidencyEvicted && r.Held != recovery.Absent && r.At.Epoch <= m.Epoch:
		return fmt.Sprintf("redis was rolled back: it holds load %d, which was evicted", r.At.Epoch)
	case m.Residency != models.ResidencyResident && r.Held != recovery.Absent:
		return fmt.Sprintf("redis holds load %d, which mysql does not know of", r.At.Epoch)
	case m.Residency != models.ResidencyResident:
		return fmt.Sprintf("%d claims were seen, mysql has %d", max(m.SeenSeq, m.SyncedSeq), m.SyncedSeq)
	case r.Held == recovery.Absent:
		return fmt.Sprintf(notHeld+"%d", m.Epoch)
	case r.Held == recovery.Damaged:
		return o.view.Err.Error()
	case r.At.Epoch > m.Epoch:
		return fmt.Sprintf("redis holds load %d, "+mysqlKnowsLoad+"%d", r.At.Epoch, m.Epoch)
	case behind != "":
		return "redis was rolled back: " + behind
	case m.Generation != o.Generation:
		if o.row.Loss != "" {
			return o.row.Loss
		}
		return "the claim stream lost entries since the campaign was loaded"
	}
	return fmt.Sprintf(isFenced+"%d", m.Epoch)
}

// Parked reads the parked claims of a lot.
func (h *Hydrator) Parked(ctx context.Context, id string) (*writer.ParkedClaims, error) {
	return writer.ReadParked(ctx, h.db.ConnPool, id)
}
