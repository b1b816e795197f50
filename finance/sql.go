package finance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"dibs/internal/sqlstore"
)

// errOverflow means the account's amount would exceed its column.
var errOverflow = errors.New("finance: the account is full")

// sqlite is gorm's name of the dialect; any other is MySQL's.
const sqlite = "sqlite"

// commit inserts all entries and adds them to the accounts, in one
// transaction. It retries while the database is unreachable, or after a
// conflict with another transaction. If an entry already exists, the error
// is sqlstore.FailureDuplicate. After an error of unknown outcome it may be
// called again.
func (b *Books) commit(ctx context.Context, entries []Entry) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now := sqlstore.Now()
	for i := range entries {
		entries[i].CreditedAt = now
	}
	accounts := accountsOf(entries, now)
	tries := 0
	err := sqlstore.Retry(ctx, func() error {
		tries++
		if tries > 1 {
			b.metrics.retries.Inc()
		}
		return b.cfg.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			rows := sqlstore.RowsPerInsert(tx)
			for chunk := range slices.Chunk(entries, rows) {
				if err := tx.Create(chunk).Error; err != nil {
					return fmt.Errorf("account_entries: %w", err)
				}
			}
			for chunk := range slices.Chunk(accounts, rows) {
				if err := moveAccounts(tx, chunk); err != nil {
					return fmt.Errorf("accounts: %w", err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("finance: credit: %w", err)
	}
	return nil
}

// accountsOf sums up entries by account, sorted by key, so that all
// transactions lock accounts in one order.
func accountsOf(entries []Entry, now time.Time) []Account {
	type key struct{ user, currency string }
	sums := make(map[key]*Account, len(entries))
	for i := range entries {
		e := &entries[i]
		k := key{e.UserID, e.Currency}
		sum := sums[k]
		if sum == nil {
			sum = &Account{UserID: e.UserID, Currency: e.Currency, UpdatedAt: now}
			sums[k] = sum
		}
		sum.Amount += e.Amount
		sum.Entries++
	}
	accounts := make([]Account, 0, len(sums))
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(a.currency, b.currency))
	}) {
		accounts = append(accounts, *sums[k])
	}
	return accounts
}

func moveAccounts(tx *gorm.DB, sums []Account) error {
	added := func(column string) string { return "VALUES(" + column + ")" }
	conflict := clause.OnConflict{Columns: []clause.Column{{Name: "user_id"}, {Name: "currency"}}}
	lite := tx.Name() == sqlite
	if lite {
		added = func(column string) string { return "excluded." + column }
		// MySQL refuses an overflow. SQLite would continue in floating
		// point, so this condition leaves the row unchanged.
		conflict.Where = clause.Where{Exprs: []clause.Expression{
			gorm.Expr("accounts.amount <= 9223372036854775807 - excluded.amount"),
		}}
	}
	conflict.DoUpdates = clause.Assignments(map[string]any{
		"amount":     gorm.Expr("accounts.amount + " + added("amount")),
		"entries":    gorm.Expr("accounts.entries + " + added("entries")),
		"updated_at": gorm.Expr(added("updated_at")),
	})
	result := tx.Clauses(conflict).Create(sums)
	if result.Error == nil && lite && result.RowsAffected != int64(len(sums)) {
		return sqlstore.Final(errOverflow)
	}
	return result.Error
}

// lookUp reads the existing entries by id, and the entries of their packets
// by packet.
func (b *Books) lookUp(ctx context.Context, entries []Entry) (known map[string]Entry, paid map[packetKey]Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	known = make(map[string]Entry)
	paid = make(map[packetKey]Entry)
	ids := make([]string, len(entries))
	packets := make(map[string][]string)
	for i := range entries {
		ids[i] = entries[i].ClaimID
		if packet, is := entries[i].packet(); is {
			packets[packet.campaignID] = append(packets[packet.campaignID], packet.packetID)
		}
	}
	err = b.read(ctx, ids, "claim_id IN ?", nil, func(e Entry) { known[e.ClaimID] = e })
	for campaignID, of := range packets {
		if err == nil {
			err = b.read(ctx, of, "packet_id IN ? AND campaign_id = ?", []any{campaignID}, func(e Entry) {
				paid[packetKey{campaignID, *e.PacketID}] = e
				known[e.ClaimID] = e // inserted between the two reads
			})
		}
	}
	return known, paid, err
}

func (b *Books) read(ctx context.Context, values []string, where string, more []any, take func(Entry)) error {
	for chunk := range slices.Chunk(values, sqlstore.RowsPerInsert(b.cfg.DB)) {
		var there []Entry
		if err := b.cfg.DB.WithContext(ctx).Where(where, append([]any{chunk}, more...)...).Find(&there).Error; err != nil {
			return fmt.Errorf("finance: look up: %w", err)
		}
		for i := range there {
			take(there[i])
		}
	}
	return nil
}
