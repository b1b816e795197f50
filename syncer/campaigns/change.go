package campaigns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm"
)

// Change changes a definition in MySQL and then in Redis, from the next
// claim on. A closed campaign stays closed. If Redis fails, MySQL keeps
// the change and the syncer sends it later. Errors: models.ErrNotFound,
// models.ErrBehind, models.ErrChanged for another version,
// *models.FieldError, and those of lua.Scripts.Adjust.
func (r *Repository) Change(ctx context.Context, id string, change models.Change) (models.Campaign, error) {
	before, err := r.sender.Known(ctx, id)
	if err != nil {
		return models.Campaign{}, err
	}
	if change.Status != nil && *change.Status == models.StatusOpen {
		if err := r.awaitPauses(ctx, &before); err != nil {
			return models.Campaign{}, err
		}
	}
	c, err := r.change(ctx, &before, change, r.limitsFrom(ctx, change))
	if err != nil {
		return models.Campaign{}, err
	}
	sendErr := r.send(ctx, &c)
	if c.IsSharded() && c.Total != before.Total && r.settler != nil {
		if err := r.settler.Settle(ctx, id); err != nil {
			r.log.WarnContext(ctx, "the total of a campaign is changed in mysql, its shards follow later",
				slog.String("campaign_id", id), slog.Any("error", err))
		}
	}
	if sendErr != nil {
		return models.Campaign{}, fmt.Errorf("campaigns: campaign %s is changed in mysql, redis will follow: %w", id, sendErr)
	}
	return r.Get(ctx, id)
}

// limitsFrom is when new limits start, in ms since 1970. It is not later
// than the clock of claims, if that answers: until then no claim would count.
func (r *Repository) limitsFrom(ctx context.Context, change models.Change) int64 {
	now := time.Now()
	if change.Limits != nil {
		if redis := r.sender.scripts.NowOrZero(ctx); !redis.IsZero() && redis.Before(now) {
			now = redis
		}
	}
	return now.UnixMilli()
}

func (r *Repository) send(ctx context.Context, c *models.Campaign) error {
	lots := []models.Campaign{*c}
	if c.IsSharded() {
		var err error
		lots, err = ReadLots(r.db.WithContext(ctx), c.ID)
		if err != nil {
			return err
		}
	}
	var failed []error
	for i := range lots {
		if lot := &lots[i]; lot.AppliedVersion != lot.Version {
			failed = append(failed, r.sender.Send(ctx, lot.ID))
		}
	}
	return errors.Join(failed...)
}

// change is the transaction of a change.
// It uses only constant fields of before.
func (r *Repository) change(
	ctx context.Context, before *models.Campaign, change models.Change, fromMs int64,
) (c models.Campaign, err error) {
	err = sqlstore.Retry(ctx, func() error {
		made := c.Version // by an earlier try, which may have been committed
		return r.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
			if before.IsSharded() {
				if err := LockLots(tx, before); err != nil {
					return err
				}
			}
			c, err = changeInMySQL(tx, before.ID, change, fromMs, made)
			return err
		})
	})
	return c, err
}

// changeInMySQL changes the definition. Redis still sells by an old
// total. Until it has applied the change, redis_total keeps remaining
// from falling below Redis' own.
func changeInMySQL(tx *gorm.DB, id string, change models.Change, fromMs, made int64) (models.Campaign, error) {
	if err := lockCampaign(tx, id); err != nil {
		return models.Campaign{}, err
	}
	c, err := Read(tx, id)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return models.Campaign{}, sqlstore.Final(err)
	case err != nil:
		return models.Campaign{}, err
	}
	if made != 0 && made == c.Version {
		return c, nil
	}
	if !change.Fits(c.Version) {
		return models.Campaign{}, sqlstore.Final(fmt.Errorf("%w: campaign %s", models.ErrChanged, id))
	}
	before := c
	if before.Status == models.StatusClosed && change.Status != nil && *change.Status != models.StatusClosed {
		return models.Campaign{}, sqlstore.Final(&models.FieldError{Field: "status", Reason: "is closed, for ever"})
	}
	if before.Kind == models.KindPacket && change.Total != nil {
		reason := "of a packet campaign comes from its packets"
		return models.Campaign{}, sqlstore.Final(&models.FieldError{Field: "total", Reason: reason})
	}
	change.Apply(&c)
	c.Limits.ContinueFrom(before.Limits, before.Changes+1, fromMs)
	c.StartsAt = milliseconds(c.StartsAt)
	c.EndsAt = milliseconds(c.EndsAt)
	if err := c.Validate(); err != nil {
		return models.Campaign{}, sqlstore.Final(err)
	}
	if reflect.DeepEqual(before, c) {
		return c, nil
	}
	c.Version = versionAfter(c.Version)
	c.Changes++
	if c.IsSharded() {
		err = changeShards(tx, &before, &c)
	} else {
		c.RedisTotal = 0
		if IsResident(&c) {
			c.RedisTotal = max(before.RedisTotal, before.Total)
		}
		err = publishCrossed(tx, &before, &c)
	}
	if err != nil {
		return models.Campaign{}, err
	}
	if err := writeChange(tx, &c); err != nil {
		return models.Campaign{}, fmt.Errorf("campaigns: change %s: %w", id, err)
	}
	return c, auditChanged(tx.Statement.Context, tx, &before, &c)
}

// lockCampaign locks the rows of a change before the
// first read, so the snapshot has earlier changes. On
// a view a locking read needs more rights than it has.
func lockCampaign(tx *gorm.DB, id string) error {
	if tx.Name() == migrations.SQLite {
		return nil // writers are serialized
	}
	for _, query := range []string{
		"SELECT total FROM lots WHERE campaign_id = ? AND shard = 0 FOR UPDATE",
		"SELECT version FROM definitions WHERE campaign_id = ? FOR UPDATE",
	} {
		var n int64
		if err := tx.Raw(query, id).Scan(&n).Error; err != nil {
			return fmt.Errorf("campaigns: lock %s: %w", id, err)
		}
	}
	return nil
}

// untold is the column's value after a change. It is set on lots, which
// a sharded campaign is not.
const untold = "CASE WHEN shard > 0 OR ? = 1 THEN 1 END"

// writeChange writes the definition, and the total. Shards keep their units.
func writeChange(tx *gorm.DB, c *models.Campaign) error {
	err := tx.Exec("UPDATE definitions SET name = ?, public = ?, per_user = ?, per_user_per_day = ?, limits = ?,"+
		" starts_at = ?, ends_at = ?, low_stock_at = ?, status = ?, version = ?, changes = ? WHERE campaign_id = ?",
		c.Name, c.Public, c.PerUser, c.PerUserPerDay, c.Limits, timeText(c.StartsAt), timeText(c.EndsAt),
		c.LowStockAt, c.Status, c.Version, c.Changes, c.ID).Error
	if err != nil {
		return err
	}
	c.UpdatedAt = sqlstore.Now()
	return tx.Exec("UPDATE lots SET total = CASE WHEN shard = 0 THEN ? ELSE total END,"+
		" redis_total = CASE WHEN shard = 0 THEN ? ELSE redis_total END, untold = "+untold+
		", updated_at = ? WHERE campaign_id = ?",
		c.Total, c.RedisTotal, c.Shards, c.UpdatedAt, c.ID).Error
}

// publishCrossed adds the stock lines that a change crosses to the
// outbox. If Redis has the campaign, adjust.lua appends them instead.
// If both happen, the ids are the same.
func publishCrossed(tx *gorm.DB, before, after *models.Campaign) error {
	if IsResident(after) || after.Status == models.StatusClosed {
		return nil
	}
	var rows []stored.OutboxRow
	for _, e := range crossed(before, after) {
		e.CampaignID = after.ID
		e.Seq = after.SyncedSeq
		e.Epoch = after.Epoch
		row, err := NewOutboxRow(stored.OutboxEvent, &e)
		if err != nil {
			return sqlstore.Final(err)
		}
		rows = append(rows, row)
	}
	return PutOutbox(tx.Statement.Context, tx, rows)
}

func crossed(before, after *models.Campaign) (events []event.Event) {
	had := max(0, before.Total-before.Claimed-before.LostUnits)
	has := max(0, after.Total-after.Claimed-after.LostUnits)
	if low := after.LowStockAt; low > 0 && has <= low && (had > before.LowStockAt || before.LowStockAt == 0) {
		id := lua.ChangeID(after) + ":low_stock"
		events = append(events, event.Event{Type: event.CampaignLowStock, ID: id, Remaining: &has})
	}
	if has == 0 && had > 0 {
		id := lua.ChangeID(after) + ":sold_out"
		events = append(events, event.Event{Type: event.CampaignSoldOut, ID: id, Remaining: &has})
	}
	return events
}

// versionAfter numbers a change by the time. If MySQL is restored to
// before a change that Redis has, the next change is newer than both.
func versionAfter(version int64) int64 { return max(version+1, time.Now().UnixMilli()) }
