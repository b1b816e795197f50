package compare

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
	"dibs/syncer/parking"
	"dibs/syncer/tables"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

const comparePause, compareTries = 20 * time.Millisecond, 5

// Comparer compares campaigns. Round serves one goroutine, all else any
// number.
type Comparer struct {
	db      *gorm.DB
	scripts *lua.Scripts
	loader  *lots.Loader
	log     *slog.Logger
	metrics *metrics
	loop    loop
}

// New returns a comparer; reg may be nil.
func New(db *gorm.DB, scripts *lua.Scripts, loader *lots.Loader, log *slog.Logger, reg prometheus.Registerer) *Comparer {
	return &Comparer{
		db: db, scripts: scripts, loader: loader, log: log, metrics: newMetrics(reg), loop: loop{past: make(map[string]*past)},
	}
}

// Compare compares a campaign with its rows. It retries until both
// servers are at one watermark, and confirms a difference. Without a
// watermark it only compares MySQL's counters with the rows. Errors:
// models.ErrNotFound, those of lua.Scripts and the database.
func (c *Comparer) Compare(ctx context.Context, id string) (Comparison, error) {
	return c.compare(ctx, id, true)
}

func (c *Comparer) compare(ctx context.Context, id string, countsRows bool) (Comparison, error) {
	isConfirmed := false
	for try := 1; ; try++ {
		found, isSettled, err := c.once(ctx, id, countsRows)
		switch {
		case err != nil:
			return Comparison{}, fmt.Errorf("compare: %s: %w", id, err)
		case isSettled && (found.Agrees() || isConfirmed) || try >= compareTries:
			return found, nil
		}
		isConfirmed = isSettled && !found.Agrees()
		if err := sleep.For(ctx, comparePause); err != nil {
			return Comparison{}, fmt.Errorf("compare: %s: %w", id, err)
		}
	}
}

// once compares a campaign, MySQL first. isSettled
// reports that Redis was at its watermark.
func (c *Comparer) once(ctx context.Context, id string, countsRows bool) (found Comparison, isSettled bool, err error) {
	books, err := c.read(ctx, id, countsRows)
	if err != nil {
		return found, false, err
	}
	if books.IsSharded() {
		found, err = c.shards(ctx, books, countsRows)
		return found, true, err
	}
	found = books.comparison()
	state, err := c.scripts.State(ctx, id)
	switch {
	case errors.Is(err, lua.ErrAbsent): // Redis need not have it
		if found.Residency == models.ResidencyResident {
			found.Residency = models.ResidencyEvicted
		}
		return found, true, c.addLost(ctx, books, &found)
	case errors.Is(err, lua.ErrDamaged):
		found.differf("%v", err)
		return found, true, nil
	case err != nil:
		return found, false, err
	}
	found.Residency = models.ResidencyResident // MySQL may not have applied that yet
	found.Redis = &RedisFigures{
		Epoch: state.Epoch, Status: state.Status, Total: state.Total, Taken: state.Taken, Remaining: state.Remaining(),
		Seq: state.Seq, Released: state.Released,
	}
	found.Backlog = new(max(0, state.Seq-books.SyncedSeq-books.parked.Claims-books.LostClaims-books.GivenUpClaims))
	isSettled, err = c.isAt(ctx, books.Partition, books.offset)
	if err != nil || !isSettled {
		return found, false, err
	}
	books.with(&found, &state)
	if countsRows {
		err = c.records(ctx, books, &found, &state)
	}
	return found, true, err
}

// addLost reports units that processes saw sold of a lot that Redis lacks,
// if MySQL has no claim for them even when it has applied the stream.
func (c *Comparer) addLost(ctx context.Context, b *books, found *Comparison) error {
	if b.SeenUnits <= b.soldEver() {
		return nil
	}
	err := c.loader.Applied(ctx, b.ID)
	if errors.Is(err, lots.ErrAway) {
		return nil // their claims may be on their way
	}
	if err != nil {
		return err
	}
	b, err = c.read(ctx, b.ID, false)
	if err == nil && b.SeenUnits > b.soldEver() {
		found.differf("%d units were sold that neither server has: the next load counts them as lost", b.SeenUnits-b.soldEver())
	}
	return err
}

// isAt reports whether MySQL has applied the last entry of a claim stream.
func (c *Comparer) isAt(ctx context.Context, partition int, offset event.Offset) (bool, error) {
	tips, err := c.scripts.Tips(ctx, []int{partition})
	if err != nil {
		return false, err
	}
	at, err := lua.ParseEntryID(offset.EntryID)
	return err == nil && tips[partition] == at, err
}

// books are MySQL's counters of a lot at one moment, with waiting sums.
type books struct {
	models.Campaign

	offset       event.Offset
	parked       *parking.Claims
	untold       int64 // releases in the outbox, which no counter has
	untoldUnits  int64
	rows         *RowFigures
	packets      int64 // free
	ownedPackets int64
}

func (c *Comparer) read(ctx context.Context, id string, countsRows bool) (*books, error) {
	b := &books{}
	err := sqlstore.InSnapshot(ctx, c.db, func(tx *gorm.DB) error {
		const query = "SELECT id, kind, status, shards, partition_no, total, version, applied_version, epoch, residency," +
			" redis_total, remaining, claimed, synced_seq, sold, released_claims, lost_claims, lost_units," +
			" given_up_claims, given_up_units, seen_units, archived_claims, archived_units, archived_sold, archived_released," +
			" (SELECT COUNT(*) FROM outbox WHERE campaign_id = lots.id AND outbox.kind = ?)," +
			" (SELECT COALESCE(SUM(c.quantity), 0) FROM outbox o JOIN claims c ON c.id = o.claim_id" +
			" WHERE o.campaign_id = lots.id AND o.kind = ?) FROM defined_lots AS lots WHERE id = ?"
		err := tx.Raw(query, stored.OutboxRelease, stored.OutboxRelease, id).Row().
			Scan(&b.ID, &b.Kind, &b.Status, &b.Shards, &b.Partition, &b.Total, &b.Version, &b.AppliedVersion, &b.Epoch,
				&b.Residency, &b.RedisTotal, &b.Remaining, &b.Claimed, &b.SyncedSeq, &b.Sold, &b.ReleasedClaims,
				&b.LostClaims, &b.LostUnits, &b.GivenUpClaims, &b.GivenUpUnits, &b.SeenUnits, &b.ArchivedClaims,
				&b.ArchivedUnits, &b.ArchivedSold, &b.ArchivedReleased, &b.untold, &b.untoldUnits)
		if errors.Is(err, sql.ErrNoRows) {
			err = models.ErrNotFound
		}
		if err != nil {
			return err
		}
		waiting, err := tables.ReadWaiting(ctx, tx, id)
		if err != nil {
			return err
		}
		b.SyncedSeq += waiting.Claims
		b.Sold += waiting.Units
		b.Claimed += waiting.Units
		b.Total += waiting.Moved
		if b.IsSharded() {
			return nil
		}
		offsets, err := offset.Read(ctx, tx, b.Partition)
		if err != nil {
			return err
		}
		b.offset = offsets[b.Partition]
		b.parked, err = parking.Read(ctx, tx, id)
		if err != nil || !countsRows {
			return err
		}
		return b.count(tx)
	})
	return b, err
}

func (b *books) count(tx *gorm.DB) error {
	const live = "CASE WHEN status IN ('claimed', 'redeemed') THEN "
	campaignID, shard := models.SplitShardID(b.ID)
	r := &RowFigures{Archived: b.ArchivedClaims}
	err := tx.Raw("SELECT COUNT(*), COALESCE(SUM(quantity), 0),"+
		" COALESCE(SUM("+live+"quantity ELSE 0 END), 0), COALESCE(SUM("+live+"0 ELSE 1 END), 0), COALESCE(MAX(seq), 0)"+
		" FROM claims WHERE campaign_id = ? AND shard = ?", campaignID, shard).Row().
		Scan(&r.Claims, &r.sold, &r.Units, &r.Released, &r.Last)
	r.Units += b.untoldUnits // a release counts once its entry is applied
	r.Released -= b.untold
	r.Claims += b.ArchivedClaims
	r.sold += b.ArchivedSold
	r.Units += b.ArchivedUnits
	r.Released += b.ArchivedReleased
	b.rows = r
	if err == nil && b.Kind == models.KindPacket {
		err = tx.Raw("SELECT COUNT(claim_id),"+
			" COALESCE(SUM(CASE WHEN claim_id IS NULL AND returned_at IS NULL THEN 1 ELSE 0 END), 0)"+
			" FROM packets WHERE campaign_id = ? AND shard = ?", campaignID, shard).Row().Scan(&b.ownedPackets, &b.packets)
	}
	return err
}

func (b *books) comparison() Comparison {
	found := Comparison{
		CampaignID: b.ID, Residency: b.Residency, Rows: b.rows, Differences: []string{},
		MySQL: MySQLFigures{
			Epoch: b.Epoch, Total: b.Total, Claimed: b.Claimed, Remaining: b.Remaining, SyncedSeq: b.SyncedSeq,
			LostClaims: b.LostClaims, LostUnits: b.LostUnits, Released: b.ReleasedClaims, Untold: b.untold,
			ParkedClaims: b.parked.Claims, ParkedUnits: b.parked.Units,
		},
	}
	for _, line := range b.parked.Names() {
		found.differf("%s", line)
	}
	if b.rows == nil {
		return found
	}
	for _, one := range []struct {
		name         string
		counter, row int64
	}{
		{"synced_seq", b.SyncedSeq, b.rows.Claims}, {"sold", b.Sold, b.rows.sold},
		{"claimed", b.Claimed, b.rows.Units}, {"released_claims", b.ReleasedClaims, b.rows.Released},
	} {
		if one.counter != one.row {
			found.differf("campaigns.%s is %d, the rows of claims add up to %d", one.name, one.counter, one.row)
		}
	}
	if b.Kind == models.KindPacket && b.ownedPackets+b.ArchivedClaims < b.rows.Claims {
		found.differf("%d packets have owners, there are %d rows of claims", b.ownedPackets, b.rows.Claims)
	}
	return found
}

// soldEver returns the units ever sold of a lot, as far as MySQL knows.
func (b *books) soldEver() int64 { return b.SoldEver() + b.parked.Units }

// with compares MySQL with Redis at the same watermark.
func (b *books) with(found *Comparison, state *lua.State) {
	taken := b.Claimed + b.parked.Units + b.LostUnits
	if state.Taken != taken {
		found.differf("redis has %d units taken, mysql %d claimed, %d of parked claims and %d lost",
			state.Taken, b.Claimed, b.parked.Units, b.LostUnits)
	}
	if state.Released != b.ReleasedClaims {
		found.differf("redis knows %d releases, mysql %d", state.Released, b.ReleasedClaims)
	}
	if sold := b.soldEver(); state.Sold != sold {
		found.differf("redis has sold %d units, mysql knows of %d", state.Sold, sold)
	}
	if b.rows != nil && state.Seq < b.rows.Last {
		found.differf("redis would give seq %d again, rows have seqs up to %d", state.Seq+1, b.rows.Last)
	}
	if state.Epoch != b.Epoch {
		found.differf("redis holds load %d, mysql knows load %d", state.Epoch, b.Epoch)
	}
	hasNewest := state.Version == b.Version && b.AppliedVersion == b.Version
	if b.Kind != models.KindPacket && state.Total != b.Total && (models.IsShardID(b.ID) || hasNewest) {
		found.differf("redis has a total of %d, mysql of %d", state.Total, b.Total)
	}
	if b.RedisTotal != 0 && b.AppliedVersion == b.Version {
		found.differf("campaigns.redis_total is %d, though no change is on its way", b.RedisTotal)
	}
	drift := taken - state.Taken
	if drift == 0 && b.rows != nil {
		drift = b.rows.Units - b.Claimed
	}
	found.Drift = &drift
}

func (c *Comparer) records(ctx context.Context, b *books, found *Comparison, state *lua.State) error {
	n, err := c.scripts.CountClaimRecords(ctx, b.ID)
	if err != nil {
		return err
	}
	packets := int64(0)
	// else they return to the sender
	givesAway := b.Kind == models.KindPacket && state.Status != models.StatusClosed
	if givesAway {
		packets, err = c.scripts.CountPackets(ctx, b.ID)
		if err != nil {
			return err
		}
	}
	again, err := c.scripts.State(ctx, b.ID)
	if err != nil || again.Seq != state.Seq || again.Epoch != state.Epoch || again.Pushed != state.Pushed {
		return nil //nolint:nilerr // it changed: the next comparison will do
	}
	want := b.rows.Claims - b.rows.Archived + b.parked.Claims
	if n < want {
		want, err = c.countKeys(ctx, b)
		if err != nil {
			return err
		}
	}
	if n != want {
		found.differf("redis holds records of %d claims, mysql has %d", n, want)
	}
	want = max(0, b.packets-b.parked.Claims-b.LostUnits)
	if givesAway && b.AppliedVersion == b.Version && packets != want {
		found.differf("redis has %d packets to give away, mysql has %d", packets, want)
	}
	return nil
}

// countKeys counts claims by key. If Redis lost a claim before it was
// repeated, both have rows, and share a record.
func (c *Comparer) countKeys(ctx context.Context, b *books) (int64, error) {
	keys := make(map[string]bool)
	err := lots.EachClaim(c.db.WithContext(ctx), b.ID, b.parked.BySeq(), func(p *lua.ClaimRecord, _ bool) error {
		key := p.KeyDigest
		if len(key) == 0 {
			key = p.ID
		}
		keys[string(key)] = true
		return nil
	})
	return int64(len(keys)), err //nolint:wrapcheck // named by once
}

func (c *Comparer) shards(ctx context.Context, b *books, countsRows bool) (Comparison, error) {
	found := Comparison{
		CampaignID: b.ID, Residency: models.ResidencyNone, Differences: []string{}, Backlog: new(int64), Drift: new(int64),
		Redis: &RedisFigures{Total: b.Total}, MySQL: MySQLFigures{Total: b.Total},
	}
	if countsRows {
		found.Rows = &RowFigures{}
	}
	for _, id := range b.ShardIDs() {
		one, err := c.compare(ctx, id, countsRows)
		if err != nil {
			return found, err
		}
		found.addShard(&one)
	}
	found.MySQL.Remaining = max(0, b.Total-found.MySQL.Claimed-found.MySQL.LostUnits)
	found.Redis.Remaining = max(0, b.Total-found.Redis.Taken)
	return found, c.sums(ctx, b, &found)
}

func (c *Comparer) sums(ctx context.Context, b *books, found *Comparison) error {
	var claimed, synced, released, units int64
	for try := 1; ; try++ {
		err := c.db.WithContext(ctx).Raw("SELECT c.claimed - SUM(s.claimed), c.synced_seq - SUM(s.synced_seq),"+
			" c.released_claims - SUM(s.released_claims), c.total - SUM(s.total)"+
			" - COALESCE((SELECT SUM(m.units) FROM stock_moves m WHERE m.credited_at IS NULL AND m.campaign_id = ?), 0)"+
			" - COALESCE((SELECT SUM(f.moved) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = ?), 0)"+
			" FROM campaigns c JOIN lots s ON s.campaign_id = c.id AND s.shard > 0 WHERE c.id = ?"+
			" GROUP BY c.id, c.claimed, c.synced_seq, c.released_claims, c.total", b.ID, b.ID, b.ID).Row().
			Scan(&claimed, &synced, &released, &units)
		if err != nil {
			return fmt.Errorf("compare: shards of %s: %w", b.ID, err)
		}
		if units == 0 || try >= compareTries { // else a new total is on its way to the shards
			break
		}
		if err := sleep.For(ctx, comparePause); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		what string
		more int64
	}{{"claimed", claimed}, {"synced_seq", synced}, {"released_claims", released}} {
		if one.more != 0 {
			found.differf("campaigns.%s is %d more than that of all shards", one.what, one.more)
		}
	}
	if units != 0 && b.Status != models.StatusClosed {
		found.differf("total is %d units more than what the shards have and what is on its way between them:"+
			" the syncer settles it", units)
	}
	return nil
}
