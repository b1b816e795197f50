package resolve

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
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
	pool, err := e.relay.db.DB()
	if err != nil {
		return nil, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	claims, err := e.lock(ctx, tx, ids)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	at, units := sqlstore.Now(), int64(0)
	marks, args := strings.Repeat("?,", len(claims)), []any{string(models.ClaimExpired), at.Format(sqlstore.TimeLayout)}
	for i := range claims {
		c := &claims[i]
		c.ResolvedAt = &at
		row, err := resolutionRow(c, &decision{status: models.ClaimExpired})
		if err != nil {
			return nil, sqlstore.Final(err)
		}
		rows, args, units = append(rows, row), append(args, c.ID), units+c.Quantity
	}
	//nolint:gosec // question marks only
	query := "UPDATE claims SET status = ?, resolved_at = ? WHERE id IN (" + marks[:len(marks)-1] + ")"
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return nil, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	e.steps.At("claims moved")
	if err := campaigns.PutOutbox(ctx, tx, rows); err != nil {
		return nil, err
	}
	if err := moveBack(ctx, tx, e.relay.db.Name(), campaignID, units, int64(len(claims))); err != nil {
		return nil, err
	}
	e.steps.At("books moved")
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("resolve: expire %s: %w", campaignID, err)
	}
	return rows, nil
}

// lock holds those of the claims that are undecided, in order of their ids.
func (e *Expirer) lock(ctx context.Context, tx *sql.Tx, ids []string) (claims []models.ClaimRow, err error) {
	marks, args := strings.Repeat("?,", len(ids)), make([]any, 0, len(ids)+1)
	for _, id := range ids {
		args = append(args, id)
	}
	//nolint:gosec // question marks only
	query := "SELECT id, campaign_id, user_id, key_digest, seq, quantity, claimed_at FROM claims WHERE id IN (" + marks[:len(marks)-1] +
		") AND status = ? ORDER BY id"
	if e.relay.db.Name() != migrations.SQLite { // where a transaction that writes is alone
		query += " FOR UPDATE"
	}
	rows, err := tx.QueryContext(ctx, query, append(args, string(models.ClaimClaimed))...)
	if err != nil {
		return nil, fmt.Errorf("resolve: expire: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	for rows.Next() {
		var c models.ClaimRow
		if err := rows.Scan(&c.ID, &c.CampaignID, &c.UserID, &c.KeyDigest, &c.Seq, &c.Quantity, &c.ClaimedAt); err != nil {
			return nil, fmt.Errorf("resolve: expire: %w", err)
		}
		claims = append(claims, c)
	}
	return claims, rows.Err()
}
