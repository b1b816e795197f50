package writer

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"

	"gorm.io/gorm"
)

// countersAtOnce is how many lots a statement
// updates. Each row searches their list.
const countersAtOnce = 100

type delta struct {
	LotID    string
	Units    int64 // claimed
	Claims   int64 // synced_seq
	Released int64 // released_claims
}

func (d *delta) id() string { return d.LotID }

// moveCounters adds deltas, one a lot, to lots and to campaigns of
// several shards. It comes last in a transaction, so hot rows are
// locked for these statements only. Lots come before campaigns, in
// order of their ids: no two writers deadlock.
func moveCounters(ctx context.Context, tx *gorm.DB, deltas []delta, now time.Time) error {
	var lots, whole []delta
	for _, d := range deltas {
		campaignID, shard := models.SplitShardID(d.LotID)
		if shard == 0 {
			whole = append(whole, d)
			continue
		}
		lots = append(lots, d)
		at := slices.IndexFunc(whole, func(s delta) bool { return s.LotID == campaignID })
		if at < 0 {
			at = len(whole)
			whole = append(whole, delta{LotID: campaignID})
		}
		whole[at].Units += d.Units
		whole[at].Claims += d.Claims
		whole[at].Released += d.Released
	}
	for _, part := range [][]delta{lots, whole} {
		slices.SortFunc(part, func(a, b delta) int { return cmp.Compare(a.LotID, b.LotID) })
		for some := range slices.Chunk(part, countersAtOnce) {
			query, args := moveQuery(some, now)
			if _, err := sqlstore.Exec(ctx, tx, query, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func moveQuery(deltas []delta, now time.Time) (query string, args []any) {
	set := make([]string, 0, 4)
	for _, c := range []struct {
		column string
		of     func(*delta) int64
	}{
		{"claimed", func(d *delta) int64 { return d.Units }},
		{"synced_seq", func(d *delta) int64 { return d.Claims }},
		{"released_claims", func(d *delta) int64 { return d.Released }},
	} {
		if !slices.ContainsFunc(deltas, func(d delta) bool { return c.of(&d) != 0 }) {
			continue
		}
		if len(deltas) == 1 {
			args = append(args, c.of(&deltas[0]))
			set = append(set, c.column+" = "+c.column+" + ?")
			continue
		}
		set = append(set, c.column+" = "+c.column+" + "+
			sqlstore.Case(&args, deltas, (*delta).id, func(d *delta) any { return c.of(d) }))
	}
	args = append(args, now.UTC().Format(sqlstore.TimeLayout))
	for i := range deltas {
		args = append(args, deltas[i].LotID)
	}
	query = "UPDATE lots SET " + strings.Join(append(set, "updated_at = ?"), ", ") +
		" WHERE id IN " + sqlstore.Marks(len(deltas))
	return query, args
}
