package residency

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/writer"
)

// EachClaim calls each for every claim of a campaign in order of seq: those with rows, and among them the parked ones. A claim is
// each's own until it returns. MySQL is read no faster than that.
func EachClaim(ctx context.Context, tx *sqlstore.Tx, id string, parked []*writer.ParkedClaim, each func(*lua.ClaimRecord) error) error {
	campaignID, shard := models.SplitShardID(id)
	// By their places: sorting a million rows would take a server longer than anything else here.

	rows, err := tx.QueryContext(ctx, "SELECT id, user_id, key_digest, seq, quantity, claimed_at, status, packet_id,"+
		" COALESCE(amount, 0), subjects FROM claims"+sqlstore.ByIndex(tx, "claims_place")+
		" WHERE campaign_id = ? AND shard = ? ORDER BY seq", campaignID, shard)
	if err != nil {
		return fmt.Errorf("residency: claims of %s: %w", id, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	var claimID, user, digest, status, packet sql.RawBytes
	var p lua.ClaimRecord
	n := 0
	for rows.Next() {
		n++
		if err := rows.Scan(&claimID, &user, &digest, &p.Seq, &p.Quantity, &p.At, &status, &packet, &p.Amount, &p.Subjects); err != nil {
			return fmt.Errorf("residency: claims of %s: %w", id, err)
		}
		parked, err = eachParked(parked, p.Seq, each)
		if err != nil {
			return err
		}
		p.ID = claimID
		p.UserID = user
		p.KeyDigest = digest
		p.PacketID = packet
		p.Live = string(status) == string(models.ClaimClaimed) || string(status) == string(models.ClaimRedeemed)
		if err := each(&p); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("residency: claims of %s: %w", id, err)
	}
	var all int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND shard = ?", campaignID, shard).Scan(&all)
	if err == nil && all != n {
		err = fmt.Errorf("%w: claims of %s: %d of %d", sqlstore.ErrShort, id, n, all)
	}
	if err != nil {
		return fmt.Errorf("residency: claims of %s: %w", id, err)
	}
	_, err = eachParked(parked, math.MaxInt64, each)
	return err
}

// eachParked calls each for the parked claims before a seq, and returns the others.
func eachParked(parked []*writer.ParkedClaim, seq int64, each func(*lua.ClaimRecord) error) ([]*writer.ParkedClaim, error) {
	for len(parked) > 0 && parked[0].Event.Seq < seq {
		if err := each(parked[0].Record()); err != nil {
			return nil, err
		}
		parked = parked[1:]
	}
	return parked, nil
}
