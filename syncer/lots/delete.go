package lots

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/tables"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// deleteTimeout bounds a deletion in Redis after
// ctx has ended: Redis may keep nothing of it.
const deleteTimeout = 2 * time.Second

// Delete deletes a campaign that never had a claim. Until MySQL has no row of
// it, its lots are fenced against claims. A stream has campaign.deleted for
// each lot. Errors: models.ErrNotFound, models.ErrClaimed, models.ErrBehind,
// ErrAway, and those of lua.Scripts.
func (l *Loader) Delete(ctx context.Context, id string) error {
	c, err := l.sender.Known(ctx, id)
	if err != nil {
		return err
	}
	ids := models.ShardIDs(id, c.Shards)
	if c.Sold > 0 || l.isClaimed(ctx, ids) { // do not stop a sale
		return fmt.Errorf("%w: campaign %s", models.ErrClaimed, id)
	}
	token := rand.Text()
	events, err := deletedEvents(ids)
	if err != nil {
		return err
	}
	if err := l.deleteFenced(ctx, &c, ids, token, events); err != nil {
		l.scripts.Fence(context.WithoutCancel(ctx), token, lua.FenceLeave, ids)
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	for i, lot := range ids { // if that fails, the relay appends the event
		_ = l.scripts.Delete(ctx, lot, token, events[i].ID, events[i].Payload)
	}
	return nil
}

// isClaimed reports whether Redis has claims of lots. If it does not
// answer, the fence finds out.
func (l *Loader) isClaimed(ctx context.Context, ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		state, err := l.scripts.State(ctx, id)
		return err == nil && state.Position().Seq > 0
	})
}

func deletedEvents(ids []string) ([]stored.OutboxRow, error) {
	rows := make([]stored.OutboxRow, len(ids))
	for i, id := range ids {
		e := event.Event{Type: event.CampaignDeleted}
		e.CampaignID, e.Shard = models.SplitShardID(id)
		var err error
		rows[i], err = campaigns.NewOutboxRow(stored.OutboxEvent, &e)
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (l *Loader) deleteFenced(
	ctx context.Context, c *models.Campaign, ids []string, token string, events []stored.OutboxRow,
) error {
	lots, err := l.fenceAll(ctx, ids, token)
	if err != nil {
		return err
	}
	ctx, stop := l.renew(ctx, token, ids...)
	defer stop()
	l.steps.At("fenced")
	if err := l.awaitTip(ctx, lots[0]); err != nil {
		return err
	}
	numbered, err := l.number(ctx, lots, token)
	if err != nil {
		return err
	}
	if len(numbered) < len(ids) {
		return fmt.Errorf("%w: %s", lua.ErrOther, c.ID)
	}
	for _, o := range numbered {
		if o.mayBeKnownBetter() { // processes report what they saw
			if err := sleep.For(ctx, l.settle); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrAway, c.ID, err)
			}
			break
		}
	}
	return sqlstore.InTx(ctx, l.db, func(tx *gorm.DB) error { return deleteRows(tx, c, ids, token, events) })
}

func (l *Loader) fenceAll(ctx context.Context, ids []string, token string) ([]*lot, error) {
	lots, err := l.fence(ctx, ids, lua.FenceAny, token)
	var failed []error
	for _, o := range lots {
		if errors.Is(o.err, lua.ErrOther) {
			o.err = fmt.Errorf("%w: %w", ErrAway, o.err)
		}
		failed = append(failed, o.err)
	}
	if err == nil && len(lots) < len(ids) {
		err = fmt.Errorf("%w: %s: MySQL lacks a shard", ErrAway, ids[0])
	}
	return lots, errors.Join(append(failed, err)...)
}

func deleteRows(tx *gorm.DB, c *models.Campaign, ids []string, token string, events []stored.OutboxRow) error {
	var rows []lotRow // locked before the snapshot starts
	err := tx.Table("lots").Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Select("loader").Where("campaign_id = ? AND id IN ?", c.ID, ids).Find(&rows).Error
	if err != nil {
		return fmt.Errorf("lots: delete %s: %w", c.ID, err)
	}
	if len(rows) < len(ids) || slices.ContainsFunc(rows, func(r lotRow) bool { return r.Loader != token }) {
		return sqlstore.Final(fmt.Errorf("%w: %s: another process loads it", ErrAway, c.ID))
	}
	isBlank, err := tables.DeleteBlank(tx, c.ID)
	switch {
	case err != nil:
		return fmt.Errorf("lots: delete %s: %w", c.ID, err)
	case !isBlank:
		return sqlstore.Final(fmt.Errorf("%w: campaign %s", models.ErrClaimed, c.ID))
	}
	if err := campaigns.PutOutbox(tx.Statement.Context, tx, events); err != nil {
		return err
	}
	return audit.Put(tx.Statement.Context, tx, models.AuditCampaignDeleted, c.ID, c.DefinitionJSON(), nil)
}
