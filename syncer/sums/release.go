package sums

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/syncer/adder"

	"gorm.io/gorm"
)

// lotsAtOnce is how many lots a statement of
// Release updates. Each row searches their list.
const lotsAtOnce = 100

// Release takes released claims from lots and from campaigns of several
// shards. It comes last in a transaction, so hot rows are locked for these
// statements only. Lots come before campaigns, in order of their ids: no
// two writers deadlock.
func Release(ctx context.Context, tx *gorm.DB, sums adder.Sums, now time.Time) error {
	shards := make(adder.Sums)
	whole := make(adder.Sums)
	for lot, sum := range sums {
		if lot.Shard > 0 {
			shards[lot] = sum
		}
		whole.Of(adder.Lot{CampaignID: lot.CampaignID}).Merge(sum)
	}
	for _, part := range []adder.Sums{shards, whole} {
		lots := slices.SortedFunc(maps.Keys(part), func(a, b adder.Lot) int { return cmp.Compare(a.ID(), b.ID()) })
		for some := range slices.Chunk(lots, lotsAtOnce) {
			query, args := releaseQuery(part, some, now)
			if _, err := sqlstore.Exec(ctx, tx, query, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func releaseQuery(sums adder.Sums, lots []adder.Lot, now time.Time) (query string, args []any) {
	id := func(lot *adder.Lot) string { return lot.ID() }
	query = "UPDATE lots SET claimed = claimed - " + sqlstore.Case(&args, lots, id, func(lot *adder.Lot) any { return sums[*lot].Units }) +
		", released_claims = released_claims + " + sqlstore.Case(&args, lots, id, func(lot *adder.Lot) any { return sums[*lot].Claims }) +
		", updated_at = ? WHERE id IN " + sqlstore.Marks(len(lots))
	args = append(args, now.UTC().Format(sqlstore.TimeLayout))
	for i := range lots {
		args = append(args, lots[i].ID())
	}
	return query, args
}
