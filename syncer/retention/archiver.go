package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models"
	"dibs/models/stored"

	"gorm.io/gorm"
)

// ErrNotArchivable reports why claims can't be archived now.
var ErrNotArchivable = errors.New("retention: claims can't be archived now")

const (
	archivePage = 1000            // claims of a transaction
	evictedWait = 2 * time.Second // for MySQL to apply an eviction
	evictedPoll = 20 * time.Millisecond
)

// Archiver moves claims of closed campaigns to claims_archive. The counters
// still include them. The transaction also counts them in archived_claims and
// its like, so an archiver that dies leaves nothing to repair.
type Archiver struct {
	db    *gorm.DB
	evict func(ctx context.Context, campaignID string) error
	moved func(claims int) // called for each page

	pageSize int // archivePage, except in tests
	steps    steps.Steps
}

// NewArchiver returns an archiver. evict evicts
// a resident lot; moved is called for each page.
func NewArchiver(db *gorm.DB, evict func(ctx context.Context, campaignID string) error, moved func(claims int)) *Archiver {
	return &Archiver{db: db, evict: evict, moved: moved, pageSize: archivePage}
}

// Archive moves the claims of a campaign made before a time, and
// returns how many. After each page it pauses as long as that took, so
// that new claims come first. Claims that may still expire stay.
// Errors: ErrNotArchivable, models.ErrNotFound, and the database's.
func (a *Archiver) Archive(ctx context.Context, campaignID string, before time.Time) (moved int64, err error) {
	shards, err := a.mayArchive(ctx, campaignID)
	if err != nil {
		return 0, err
	}
	for _, lotID := range shards {
		if err := a.evict(ctx, lotID); err != nil {
			return moved, err
		}
		if err := a.awaitEvicted(ctx, lotID); err != nil {
			return moved, err
		}
		if err := a.archiveLot(ctx, lotID, before, &moved); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// awaitEvicted waits a while for MySQL to apply
// an eviction. If it does not, move fails.
func (a *Archiver) awaitEvicted(ctx context.Context, lotID string) error {
	for end := time.Now().Add(evictedWait); time.Now().Before(end); {
		var residency models.Residency
		err := a.db.WithContext(ctx).Raw("SELECT residency FROM lots WHERE id = ?", lotID).Scan(&residency).Error
		if err != nil {
			return fmt.Errorf("retention: archive %s: %w", lotID, err)
		}
		if residency != models.ResidencyResident {
			return nil
		}
		if err := sleep.For(ctx, evictedPoll); err != nil {
			return err
		}
	}
	return nil
}

func (a *Archiver) archiveLot(ctx context.Context, lotID string, before time.Time, moved *int64) error {
	for from := int64(0); ; {
		started := time.Now()
		n, last, err := a.page(ctx, lotID, from, before, *moved == 0)
		if err != nil || n == 0 {
			return err
		}
		a.steps.At("moved")
		a.moved(int(n))
		*moved += n
		from = last // another claim may have this seq, after a loss in Redis
		if err := sleep.For(ctx, time.Since(started)); err != nil {
			return err
		}
	}
}

// mayArchive refuses campaigns that have not
// ended, and returns the ids of the lots.
func (a *Archiver) mayArchive(ctx context.Context, id string) (shards []string, err error) {
	var c struct {
		Status      models.Status
		IsPublished bool
		Shards      int
		LostUnits   int64
	}
	db := a.db.WithContext(ctx)
	err = db.Raw("SELECT status, closed_told_at IS NOT NULL AS is_published, shards, lost_units FROM campaigns WHERE id = ?", id).
		Scan(&c).Error
	switch {
	case err != nil:
		return nil, fmt.Errorf("retention: archive %s: %w", id, err)
	case c.Status == "":
		return nil, fmt.Errorf("retention: archive: %w: campaign %s", models.ErrNotFound, id)
	case c.Status != models.StatusClosed:
		return nil, fmt.Errorf("%w: %s is %s: only closed campaigns are archived", ErrNotArchivable, id, c.Status)
	case !c.IsPublished:
		return nil, fmt.Errorf("%w: %s is closed, and its end is not written yet: try again in some seconds", ErrNotArchivable, id)
	case c.LostUnits > 0: // no row is written behind archived ones
		return nil, fmt.Errorf("%w: %d units of %s are lost, and their claims may come back:"+
			" `dibs reconcile --repair --give-up-claims` gives them up", ErrNotArchivable, c.LostUnits, id)
	}
	var parked int64
	shards = (&models.Campaign{ID: id, Shards: c.Shards}).ShardIDs()
	err = db.Raw("SELECT COUNT(*) FROM parked_events WHERE campaign_id IN ? AND discarded_at IS NULL", append(shards, id)).
		Scan(&parked).Error
	if err != nil {
		return nil, fmt.Errorf("retention: archive %s: %w", id, err)
	}
	if parked > 0 {
		return nil, fmt.Errorf("%w: %s has %d parked events: see dibs reconcile --campaign %s", ErrNotArchivable, id, parked, id)
	}
	return shards, nil
}

// page moves a page of claims in one transaction, and returns their
// number and last seq. The first page writes the audit row.
func (a *Archiver) page(
	ctx context.Context, lotID string, from int64, before time.Time, isFirst bool,
) (moved, last int64, err error) {
	err = sqlstore.InTx(ctx, a.db, func(tx *gorm.DB) error {
		claims, err := a.read(tx, lotID, from, before)
		moved = int64(len(claims))
		if err != nil || moved == 0 {
			return err
		}
		last = claims[moved-1].Seq
		if isFirst {
			what := map[string]string{"claimed_before": before.UTC().Format(models.TimeLayout)}
			if err := audit.Put(ctx, tx, models.AuditClaimsArchived, claims[0].CampaignID, nil, what); err != nil {
				return err
			}
		}
		return a.move(tx, lotID, claims)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("retention: archive %s: %w", lotID, err)
	}
	return moved, last, nil
}

const archiveColumns = "id, campaign_id, shard, seq, user_id, quantity, status, key_digest, subjects, epoch, packet_id," +
	" amount, order_id, claimed_at, synced_at, resolved_at, release_reason, decisions, reopened_at, held_until"

// read locks and reads the next claims, in order of seq. It skips open
// holds, and decisions in the outbox, which the counters lack.
func (a *Archiver) read(tx *gorm.DB, lotID string, from int64, before time.Time) (claims []stored.ClaimRow, err error) {
	id, shard := models.SplitShardID(lotID)
	query := "SELECT " + archiveColumns + " FROM claims" + sqlstore.ByIndex(a.db, "claims_place") +
		" WHERE campaign_id = ? AND shard = ? AND seq >= ? AND claimed_at < ?" +
		" AND (status <> ? OR (SELECT hold_for_ms FROM definitions d WHERE d.campaign_id = ?) = 0)" +
		" AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.campaign_id = ? AND o.claim_id = claims.id)" +
		" ORDER BY seq LIMIT ?" + sqlstore.ForUpdate(a.db)
	madeBefore := before.UTC().Format(sqlstore.TimeLayout)
	err = tx.Raw(query, id, shard, from, madeBefore, models.ClaimClaimed, id, lotID, a.pageSize).Scan(&claims).Error
	return claims, err
}

func (a *Archiver) move(tx *gorm.DB, lotID string, claims []stored.ClaimRow) error {
	var units, sold, released int64
	ids := make([]string, len(claims))
	var orders, ordered []string
	for i := range claims {
		c := &claims[i]
		ids[i] = c.ID
		sold += c.Quantity
		if c.Status.Live() {
			units += c.Quantity
		} else {
			released++
		}
		if c.OrderID != nil {
			orders = append(orders, *c.OrderID)
			ordered = append(ordered, c.ID)
		}
	}
	query := "INSERT INTO claims_archive (" + archiveColumns + ", archived_at) SELECT " + archiveColumns + ", ?" +
		" FROM claims WHERE id IN ?"
	if err := tx.Exec(query, sqlstore.Now().Format(sqlstore.TimeLayout), ids).Error; err != nil {
		return err
	}
	a.steps.At("put")
	if len(orders) > 0 {
		err := tx.Where("order_id IN ? AND claim_id IN ?", orders, ordered).Delete(&stored.ClaimOrder{}).Error
		if err != nil {
			return err
		}
	}
	if err := tx.Where("id IN ?", ids).Delete(&stored.ClaimRow{}).Error; err != nil {
		return err
	}
	a.steps.At("deleted")
	// A load reads counters and rows from
	// one snapshot: all of this or nothing.
	counted := tx.Exec("UPDATE lots SET archived_claims = archived_claims + ?,"+
		" archived_units = archived_units + ?, archived_sold = archived_sold + ?, archived_released = archived_released + ?"+
		" WHERE id = ? AND residency IN (?, ?)"+
		" AND (SELECT status FROM definitions d WHERE d.campaign_id = lots.campaign_id) = ?",
		len(ids), units, sold, released, lotID,
		models.ResidencyEvicted, models.ResidencyNone, models.StatusClosed)
	if counted.Error != nil {
		return counted.Error
	}
	if counted.RowsAffected == 0 {
		return sqlstore.Final(fmt.Errorf("%w: %s was loaded into redis in the meantime: someone asks for it; try again",
			ErrNotArchivable, lotID))
	}
	a.steps.At("counted")
	return nil
}
