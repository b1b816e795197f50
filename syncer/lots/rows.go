package lots

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/parking"
	"dibs/syncer/tables"

	"gorm.io/gorm"
)

// lot is a lot to be loaded: MySQL's row, and what the fence found in Redis.
type lot struct {
	row        lotRow
	fenced     lua.Fenced
	definition *models.Definition
	isDone     bool // live, or a campaign of shards
	err        error
}

type lotRow struct {
	models.Campaign `gorm:"embedded"`

	Untold              bool // the stream may not have the newest definition, or packets
	IsBlank             bool // no claims, now or ever
	IsProven            bool // a credit proves that it gave units that its load has
	ReloadUpto          int64
	Loader              string
	State               event.PartitionState
	PartitionGeneration int64
}

// read reads lots in any order, without unknown ids and, with a loader,
// without those that another one has numbered. Campaign.Epoch is that of the
// load in force. Errors: settings.ErrPartitions, and those of the database.
func (l *Loader) read(ctx context.Context, ids []string, loader string) ([]*lot, error) {
	var rows []lotRow
	query := l.db.WithContext(ctx).Table("defined_lots AS lot").
		Select("lot.*, o.loader, o.load_attempts, ("+tables.Blank+") AS is_blank,"+
			" EXISTS (SELECT 1 FROM stock_moves m WHERE "+gave+" AND m.reload_upto >= lot.epoch) AS is_proven,"+
			" COALESCE(s.state, 'ok') AS state, COALESCE(s.generation, 0) AS partition_generation").
		Joins("JOIN lots o ON o.campaign_id = lot.campaign_id AND o.shard = lot.shard"+
			" LEFT JOIN streams s ON s.partition_no = lot.partition_no").
		Where("lot.id IN ?", ids)
	if loader != "" {
		query = query.Where("o.loader = ?", loader)
	}
	if err := query.Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("lots: read %s: %w", ids, err)
	}
	all := make([]*lot, len(rows))
	for i := range rows {
		if err := campaigns.SamePartition(&rows[i].Campaign, l.scripts.Partitions()); err != nil {
			return nil, err
		}
		all[i] = &lot{row: rows[i]}
	}
	return all, nil
}

type counted struct {
	claims, units int64 // with rows, parked or archived
	highest       int64 // seq of these
	total         int64 // units of a shard, with waiting moves
	shares        lua.Shares
	parked        *parking.Claims
}

// loadOf is the load of a lot without what is staged. Sold units
// without a row are lost and stay taken. Redis' own counts prove
// nothing: it may have dropped claims of mode mysql.
func (o *lot) loadOf(known *counted, token string) *lua.Load {
	c := o.row.Campaign
	c.Epoch = c.LoadAttempts
	sold := max(c.SeenUnits, known.units+c.GivenUpUnits)
	seq := max(c.SeenSeq, known.highest, known.claims+c.GivenUpClaims)
	return &lua.Load{
		Campaign: &c, Definition: o.definition, Token: token, Generation: o.row.PartitionGeneration,
		Seq: seq, Sold: sold, Rows: known.claims, RowUnits: known.units,
		Taken: sold - known.units - c.GivenUpUnits, Total: known.total, Shares: known.shares,
	}
}

// known reads a lot by its counters and refreshes o.row. Errors:
// lua.ErrOther if another loader has numbered it.
func (l *Loader) known(ctx context.Context, tx *gorm.DB, o *lot, loader string) (known counted, err error) {
	c := &o.row.Campaign
	hasParked := false
	err = tx.Raw("SELECT total, synced_seq, sold, claimed, released_claims,"+
		" lost_claims, lost_units, given_up_claims, given_up_units, seen_epoch, seen_seq, seen_units,"+
		" archived_claims, archived_units, archived_sold, archived_released, load_attempts, loader,"+
		" EXISTS (SELECT 1 FROM parked_events WHERE parked_events.campaign_id = lots.id)"+
		" FROM lots WHERE id = ?", c.ID).Row().
		Scan(&known.total, &c.SyncedSeq, &c.Sold, &c.Claimed, &c.ReleasedClaims,
			&c.LostClaims, &c.LostUnits, &c.GivenUpClaims, &c.GivenUpUnits, &c.SeenEpoch, &c.SeenSeq, &c.SeenUnits,
			&c.ArchivedClaims, &c.ArchivedUnits, &c.ArchivedSold, &c.ArchivedReleased, &c.LoadAttempts, &o.row.Loader,
			&hasParked)
	if err != nil {
		return known, fmt.Errorf("lots: read %s: %w", c.ID, err)
	}
	if o.row.Loader != loader {
		return known, fmt.Errorf("%w: %s", lua.ErrOther, c.ID)
	}
	known.parked = &parking.Claims{}
	if hasParked {
		known.parked, err = parking.Read(ctx, tx, c.ID)
		if err != nil {
			return known, err
		}
	}
	campaignID, shard := models.SplitShardID(c.ID)
	waiting, err := tables.ReadWaiting(ctx, tx, c.ID)
	if err == nil && shard > 0 {
		err = tx.Raw("SELECT COALESCE(SUM(CASE WHEN from_shard = ? THEN units ELSE 0 END), 0),"+
			" COALESCE(SUM(CASE WHEN to_shard = ? AND credited_at IS NOT NULL THEN units ELSE 0 END), 0)"+
			" FROM stock_moves WHERE campaign_id = ? AND from_shard > 0 AND to_shard > 0", shard, shard, campaignID).Row().
			Scan(&known.shares.Out, &known.shares.In)
	}
	var untold int64
	if err == nil && c.Kind == models.KindPacket {
		err = tx.Raw("SELECT COUNT(*) FROM packets WHERE campaign_id = ? AND shard = ? AND position >"+
			" (SELECT told_position FROM lots WHERE id = ?)", campaignID, shard, c.ID).Row().Scan(&untold)
	}
	if err != nil {
		return known, fmt.Errorf("lots: sums of %s: %w", c.ID, err)
	}
	known.total += waiting.Moved - untold // added when they are applied
	known.claims = c.SyncedSeq + waiting.Claims + known.parked.Claims
	known.units = c.Sold + waiting.Units + known.parked.Units
	return known, nil
}

func (l *Loader) put(ctx context.Context, o *lot, token string) error {
	c := o.row.Campaign
	c.Epoch = c.LoadAttempts
	staging, err := l.scripts.NewStaging(ctx, &c, o.row.SyncedSeq)
	if err != nil {
		return fmt.Errorf("lots: load %s: %w", c.ID, err)
	}
	err = l.stage(ctx, o, staging, token)
	if err == nil {
		l.steps.At("staged")
		err = staging.Finish(ctx)
	}
	if err != nil {
		staging.Drop(context.WithoutCancel(ctx))
		return fmt.Errorf("lots: load %s: %w", c.ID, err)
	}
	l.steps.At("loaded")
	return nil
}

func (l *Loader) stage(ctx context.Context, o *lot, staging *lua.Staging, token string) error {
	var counters, rows sums
	err := sqlstore.InSnapshot(ctx, l.db, func(tx *gorm.DB) error {
		known, err := l.known(ctx, tx, o, token)
		if err != nil {
			return err
		}
		c := &o.row.Campaign
		counters = sums{
			claims: known.claims - known.parked.Claims, units: known.units - known.parked.Units,
			live: c.Claimed, released: c.ReleasedClaims,
		}
		rows = sums{claims: c.ArchivedClaims, units: c.ArchivedSold, live: c.ArchivedUnits, released: c.ArchivedReleased}
		waiting := counters.units - c.Sold // of live claims
		counters.live += waiting
		highest, err := l.stageClaims(ctx, tx, o, staging, known.parked, &rows)
		if err != nil {
			return err
		}
		known.claims = rows.claims + known.parked.Claims
		known.units = rows.units + known.parked.Units
		known.highest = highest
		load := o.loadOf(&known, token)
		load.Taken += staging.Taken + c.ArchivedUnits
		load.Released = staging.Released + c.ArchivedReleased
		staging.SetLoad(load)
		if c.Kind == models.KindPacket {
			return l.stagePackets(ctx, tx, o, staging, known.parked)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return l.correct(ctx, o, counters, rows, token)
}

type sums struct{ claims, units, live, released int64 } // of claims that are not parked

func (l *Loader) correct(ctx context.Context, o *lot, counters, rows sums, token string) error {
	if counters == rows {
		return nil
	}
	id := o.row.ID
	l.log.LogAttrs(ctx, slog.LevelWarn, "the counters of a campaign in MySQL are put right by its rows",
		slog.String("campaign_id", id),
		slog.String("counters", fmt.Sprintf("%+v", counters)), slog.String("rows", fmt.Sprintf("%+v", rows)))
	changed, err := sqlstore.Exec(ctx, l.db, "UPDATE lots SET synced_seq = synced_seq + ?,"+
		" sold = sold + ?, claimed = claimed + ?, released_claims = released_claims + ?, updated_at = ?"+
		" WHERE id = ? AND loader = ?", rows.claims-counters.claims, rows.units-counters.units,
		rows.live-counters.live, rows.released-counters.released, sqlstore.Now(), id, token)
	if err == nil && changed == 0 {
		err = fmt.Errorf("%w: %s", lua.ErrOther, id)
	}
	if campaignID, shard := models.SplitShardID(id); err == nil && shard > 0 {
		err = campaigns.SumShards(ctx, l.db, campaignID)
	}
	if err != nil {
		return fmt.Errorf("lots: counters of %s: %w", id, err)
	}
	return nil
}

const stagePage = 5000 // rows between two test steps

// stageClaims streams claims: MySQL is read no faster than Redis is
// written. Releases in the outbox have not reached Redis.
func (l *Loader) stageClaims(
	ctx context.Context, tx *gorm.DB, o *lot, staging *lua.Staging, parked *parking.Claims, rows *sums,
) (highest int64, err error) {
	id := o.row.ID
	pending, err := pendingReleases(tx, id)
	if err != nil {
		return 0, err
	}
	if o.row.ArchivedClaims > 0 {
		campaignID, shard := models.SplitShardID(id)
		err = tx.Raw("SELECT COALESCE(MAX(seq), 0) FROM claims_archive WHERE campaign_id = ? AND shard = ?", campaignID, shard).Row().
			Scan(&highest)
	}
	if err != nil {
		return 0, fmt.Errorf("lots: claims of %s: %w", id, err)
	}
	n := 0
	err = EachClaim(tx, id, parked.BySeq(), func(p *lua.ClaimRecord, isParked bool) error {
		n++
		if n%stagePage == 0 {
			l.steps.At("page")
		}
		highest = max(highest, p.Seq)
		p.Live = p.Live || pending[string(p.ID)]
		if !isParked {
			rows.claims++
			rows.units += p.Quantity
			if p.Live {
				rows.live += p.Quantity
			} else {
				rows.released++
			}
		}
		return staging.Add(ctx, p)
	})
	l.steps.At("page")
	return highest, err
}

func pendingReleases(tx *gorm.DB, id string) (map[string]bool, error) {
	var claims []string
	err := tx.Model(&stored.OutboxRow{}).Where("campaign_id = ? AND kind = ?", id, stored.OutboxRelease).
		Pluck("claim_id", &claims).Error
	if err != nil {
		return nil, fmt.Errorf("lots: outbox of %s: %w", id, err)
	}
	pending := make(map[string]bool, len(claims))
	for _, claim := range claims {
		pending[claim] = true
	}
	return pending, nil
}

// EachClaim calls each for every claim of a lot, rows and parked ones,
// in order of seq. The record is reused after each returns. MySQL is
// read no faster than each takes.
func EachClaim(
	tx *gorm.DB, id string, parked []*parking.Claim,
	each func(p *lua.ClaimRecord, isParked bool) error,
) error {
	campaignID, shard := models.SplitShardID(id)
	// By this index: sorting a million rows
	// would take longer than all else here.
	rows, err := tx.Raw("SELECT id, user_id, key_digest, seq, quantity, claimed_at, status, packet_id,"+
		" COALESCE(amount, 0), subjects FROM claims"+sqlstore.ByIndex(tx, "claims_place")+
		" WHERE campaign_id = ? AND shard = ? ORDER BY seq", campaignID, shard).Rows()
	if err != nil {
		return fmt.Errorf("lots: claims of %s: %w", id, err)
	}
	defer func() { _ = rows.Close() }() // see rows.Err
	var claimID, user, digest, status, packet sql.RawBytes
	var p lua.ClaimRecord
	n := 0
	for rows.Next() {
		n++
		err := rows.Scan(&claimID, &user, &digest, &p.Seq, &p.Quantity, &p.At, &status, &packet, &p.Amount, &p.Subjects)
		if err != nil {
			return fmt.Errorf("lots: claims of %s: %w", id, err)
		}
		parked, err = eachParked(parked, p.Seq, each)
		if err != nil {
			return err
		}
		p.ID = claimID
		p.UserID = user
		p.KeyDigest = digest
		p.PacketID = packet
		p.Live = models.ClaimStatus(status).Live()
		if err := each(&p, false); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("lots: claims of %s: %w", id, err)
	}
	var all int
	err = tx.Raw("SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND shard = ?", campaignID, shard).Row().Scan(&all)
	if err == nil && all != n {
		err = fmt.Errorf("%w: claims of %s: %d of %d", sqlstore.ErrShort, id, n, all)
	}
	if err != nil {
		return fmt.Errorf("lots: claims of %s: %w", id, err)
	}
	_, err = eachParked(parked, math.MaxInt64, each)
	return err
}

// eachParked calls each for the parked claims
// below a seq, and returns the others.
func eachParked(
	parked []*parking.Claim, seq int64, each func(*lua.ClaimRecord, bool) error,
) ([]*parking.Claim, error) {
	for len(parked) > 0 && parked[0].Event.Seq < seq {
		if err := each(parked[0].Record(), true); err != nil {
			return nil, err
		}
		parked = parked[1:]
	}
	return parked, nil
}

// stagePackets stages free packets that the stream already has; the others
// follow. As many as were lost are withheld, from the highest position down.
func (l *Loader) stagePackets(
	ctx context.Context, tx *gorm.DB, o *lot, staging *lua.Staging, parked *parking.Claims,
) error {
	campaignID, shard := models.SplitShardID(o.row.ID)
	const free = " WHERE campaign_id = ? AND shard = ? AND position <= ? AND claim_id IS NULL AND returned_at IS NULL"
	var n, pushed int64
	err := tx.Raw("SELECT told_position FROM lots WHERE id = ?", o.row.ID).Row().Scan(&pushed)
	if err == nil {
		err = tx.Raw("SELECT COUNT(*) FROM packets"+free, campaignID, shard, pushed).Row().Scan(&n)
	}
	if err != nil {
		return fmt.Errorf("lots: packets of %s: %w", o.row.ID, err)
	}
	staging.SetPushed(pushed)
	lost := staging.Sold - staging.RowUnits - o.row.GivenUpUnits
	taken := parked.Packets()
	left := max(0, n-parked.Claims-lost)
	rows, err := tx.Raw("SELECT id, amount, release_at FROM packets"+campaigns.ByPosition(tx)+
		free+" ORDER BY position", campaignID, shard, pushed).Rows()
	if err != nil {
		return fmt.Errorf("lots: packets of %s: %w", o.row.ID, err)
	}
	defer func() { _ = rows.Close() }() // see rows.Err
	for left > 0 && rows.Next() {
		var p models.Packet
		var release sql.NullTime
		if err := rows.Scan(&p.ID, &p.Amount, &release); err != nil {
			return fmt.Errorf("lots: packets of %s: %w", o.row.ID, err)
		}
		if taken[p.ID] {
			continue
		}
		left--
		if err := staging.AddPacket(ctx, &p, campaigns.ReleaseMs(release)); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("lots: packets of %s: %w", o.row.ID, err)
	}
	return nil
}
