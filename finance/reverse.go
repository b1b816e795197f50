package finance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/models/event"
)

// reversed begins the id of the entry that reverses a credit. The credit's
// id follows.
const reversed = "given_up:"

// isGivenUp reports whether an entry marks a claim that was given up before
// it was credited. Such an entry credits no one.
func (e *Entry) isGivenUp() bool { return e.UserID == "" }

// reverse reverses the credits of given-up claims, each once, however often
// events arrive. A claim with an id and without an entry gets one that credits
// no one. So its own event, if it comes later, credits nothing. One that only
// its seq names has to be credited by then: Redis lost its event, and only a
// process that had read it before can credit it later.
func (b *Books) reverse(ctx context.Context, e *event.Event) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	all, err := b.creditedAt(ctx, e)
	if err != nil {
		return err
	}
	all = append(all, e.IDs...)
	for ids := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(all))), sqlstore.RowsPerInsert(b.cfg.DB)) {
		var taken int
		err := sqlstore.InTx(ctx, b.cfg.DB, func(tx *gorm.DB) (err error) {
			taken, err = reverseIn(tx, e, ids)
			return err
		})
		if err != nil { // also if a credit came in between: the event is redelivered
			return fmt.Errorf("finance: reverse: %w", err)
		}
		if taken > 0 {
			b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "took back what claims credited that were given up",
				slog.String("campaign_id", e.CampaignID), slog.Int("entries", taken))
		}
	}
	return nil
}

// creditedAt returns the credited claims among the seqs of a shard that
// were given up. No other table has their ids.
func (b *Books) creditedAt(ctx context.Context, e *event.Event) (ids []string, err error) {
	for _, seqs := range e.Seqs {
		var some []string
		err := b.cfg.DB.WithContext(ctx).Raw("SELECT claim_id FROM account_entries"+
			" WHERE campaign_id = ? AND shard = ? AND seq BETWEEN ? AND ? AND user_id <> ''",
			e.CampaignID, e.Shard, seqs[0], seqs[1]).Scan(&some).Error
		if err != nil {
			return nil, fmt.Errorf("finance: reverse: %w", err)
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// reverseIn is the transaction of reverse. It returns the number of credits
// that it reversed.
func reverseIn(tx *gorm.DB, e *event.Event, ids []string) (taken int, err error) {
	both := slices.Clone(ids)
	for _, id := range ids {
		both = append(both, reversed+id)
	}
	var there []Entry
	if err := tx.Where("claim_id IN ? AND campaign_id = ?", both, e.CampaignID).Find(&there).Error; err != nil {
		return 0, err
	}
	booked := make(map[string]*Entry, len(there))
	for i := range there {
		booked[there[i].ClaimID] = &there[i]
	}
	now := sqlstore.Now()
	var entries, reversals []Entry
	for _, id := range ids {
		credit := booked[id]
		switch {
		case credit == nil:
			entries = append(entries, Entry{ClaimID: id, CampaignID: e.CampaignID, ClaimedAt: e.At.Time, CreditedAt: now})
		case !credit.isGivenUp() && booked[reversed+id] == nil:
			reversals = append(reversals, credit.reversal(e.At.Time, now))
		}
	}
	entries = append(entries, reversals...)
	if len(entries) == 0 {
		return 0, nil
	}
	if err := tx.Create(entries).Error; err != nil {
		return 0, fmt.Errorf("account_entries: %w", err)
	}
	if len(reversals) == 0 {
		return 0, nil
	}
	if err := vacate(tx, reversals); err != nil {
		return 0, fmt.Errorf("account_entries: %w", err)
	}
	return len(reversals), moveAccounts(tx, accountsOf(reversals, now))
}

// vacate removes packet and seq from reversed credits: another claim may
// have both now.
func vacate(tx *gorm.DB, reversals []Entry) error {
	ids := make([]string, len(reversals))
	for i := range reversals {
		ids[i] = strings.TrimPrefix(reversals[i].ClaimID, reversed)
	}
	named := "CONCAT(?, claim_id)"
	if tx.Name() == sqlite {
		named = "? || claim_id"
	}
	return tx.Exec("UPDATE account_entries SET seq = NULL, packet_id = "+named+" WHERE claim_id IN ?", reversed, ids).Error
}

// reversal is the entry that reverses a credit. It has no packet, which may
// be another claim's.
func (e *Entry) reversal(at, now time.Time) Entry {
	return Entry{
		ClaimID: reversed + e.ClaimID, UserID: e.UserID, CampaignID: e.CampaignID, Amount: -e.Amount, Currency: e.Currency,
		ClaimedAt: at, CreditedAt: now,
	}
}
