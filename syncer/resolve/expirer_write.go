package resolve

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"

	"gorm.io/gorm"
)

// apart does something for all, in order of campaigns. If that waits for a
// lock, it does it campaign by campaign, so that the others succeed.
func apart[T any](all []T, campaignOf func(*T) string, do func(part []T) error) error {
	if len(all) == 0 {
		return nil
	}
	err := do(all)
	if !sqlstore.IsLockWait(err) {
		return err
	}
	var failed []error
	for len(all) > 0 {
		id := campaignOf(&all[0])
		n := 1
		for n < len(all) && campaignOf(&all[n]) == id {
			n++
		}
		if err := do(all[:n]); err != nil && len(failed) < sqlstore.PageSize {
			failed = append(failed, fmt.Errorf("campaign %s: %w", id, err))
		}
		all = all[n:]
	}
	return errors.Join(failed...)
}

func (e *Expirer) inTx(ctx context.Context, change func(tx *gorm.DB) error) error {
	return sqlstore.Retry(ctx, func() error {
		err := sqlstore.InTxBrief(ctx, e.relay.db, change)
		if sqlstore.IsLockWait(err) {
			return sqlstore.Final(err)
		}
		return err
	})
}
