package resolve

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/migrations"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// batch releases up to a batch of claims in one transaction, and applies that to Redis. found is how many were due: somebody
// may have redeemed or released some of them meanwhile.
func (e *Expirer) batch(ctx context.Context, campaignID string, from int64, due time.Time) (expired, found int, err error) {
	var ids []string
	err = e.relay.db.WithContext(ctx).Raw("SELECT id FROM claims WHERE campaign_id = ? AND shard = 0 AND seq > ? AND seq <= ?"+
		" AND status = ? AND claimed_at <= ? ORDER BY seq LIMIT ?", campaignID, from, from+e.chunkSize, models.ClaimClaimed,
		due.UTC().Format(sqlstore.TimeLayout), e.batchSize).Scan(&ids).Error
	if err != nil {
		return 0, 0, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	if len(ids) == 0 {
		return 0, 0, nil
	}
	e.steps.At("found")
	var rows []models.OutboxRow
	err = sqlstore.Retry(ctx, func() error {
		rows, err = e.decide(ctx, campaignID, ids)
		return err
	})
	if err != nil || len(rows) == 0 {
		return 0, len(ids), err
	}
	e.steps.At("committed")
	e.expired.Add(float64(len(rows)))
	if _, err := e.relay.Apply(ctx, rows); err != nil { // the relay tries again
		return len(rows), len(ids), fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	return len(rows), len(ids), nil
}

// decide is the transaction, for those of the claims that are undecided still.
func (e *Expirer) decide(ctx context.Context, campaignID string, ids []string) (rows []models.OutboxRow, err error) {
	at := sqlstore.Now()
	err = sqlstore.InTx(ctx, e.relay.db, func(tx *sql.Tx) error {
		rows = nil
		claims, err := e.lock(ctx, tx, ids)
		if err != nil || len(claims) == 0 {
			return err
		}
		units, args := int64(0), []any{string(models.ClaimExpired), at.Format(sqlstore.TimeLayout)}
		for i := range claims {
			c := &claims[i]
			c.ResolvedAt = &at
			row, err := resolutionRow(c, &decision{status: models.ClaimExpired})
			if err != nil {
				return sqlstore.Final(err)
			}
			rows, args, units = append(rows, row), append(args, c.ID), units+c.Quantity
		}
		query := "UPDATE claims SET status = ?, resolved_at = ? WHERE id IN " + sqlstore.Marks(len(claims)) //nolint:gosec // question marks only
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
		e.steps.At("claims moved")
		if err := campaigns.PutOutbox(ctx, tx, rows); err != nil {
			return err
		}
		if err := moveBack(ctx, tx, e.relay.db.Name(), campaignID, units, int64(len(claims))); err != nil {
			return err
		}
		e.steps.At("books moved")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	return rows, nil
}

// lock locks those of the claims that are undecided, in order of their ids.
func (e *Expirer) lock(ctx context.Context, tx *sql.Tx, ids []string) (claims []models.ClaimRow, err error) {
	query := "SELECT id, campaign_id, user_id, key_digest, seq, quantity, claimed_at FROM claims WHERE id IN " + sqlstore.Marks(len(ids)) +
		" AND status = ? ORDER BY id"
	if e.relay.db.Name() != migrations.SQLite { // where a transaction that writes is alone
		query += " FOR UPDATE"
	}
	args := make([]any, 0, len(ids)+1)
	for _, id := range ids {
		args = append(args, id)
	}
	err = sqlstore.ScanAll(ctx, tx, query, append(args, string(models.ClaimClaimed)), func(scan func(...any) error) error {
		var c models.ClaimRow
		err := scan(&c.ID, &c.CampaignID, &c.UserID, &c.KeyDigest, &c.Seq, &c.Quantity, &c.ClaimedAt)
		claims = append(claims, c)
		return err
	})
	return claims, err
}
