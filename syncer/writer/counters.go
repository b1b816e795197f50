package writer

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// countersAtOnce is how many lots one statement moves: each row is found in a list of them.
const countersAtOnce = 100

// Delta is what a transaction adds to the counters of a lot.
type Delta struct {
	LotID    string
	Units    int64 // claimed
	Claims   int64 // synced_seq
	Released int64 // released_claims
}

func (d *Delta) id() string { return d.LotID }

// MoveCounters moves the counters of lots, each of which is there once, and the sums of campaigns of several shards. It comes
// last in a transaction, so that hot rows are locked for these statements and the commit. Lots come before campaigns, in order
// of their ids.
func MoveCounters(ctx context.Context, tx sqlstore.Execer, deltas []Delta, now time.Time) error {
	var lots, whole []Delta
	for _, d := range deltas {
		campaignID, shard := models.SplitShardID(d.LotID)
		if shard == 0 {
			whole = append(whole, d)
			continue
		}
		lots = append(lots, d)
		at := slices.IndexFunc(whole, func(s Delta) bool { return s.LotID == campaignID })
		if at < 0 {
			at = len(whole)
			whole = append(whole, Delta{LotID: campaignID})
		}
		whole[at].Units += d.Units
		whole[at].Claims += d.Claims
		whole[at].Released += d.Released
	}
	for _, part := range [][]Delta{lots, whole} {
		slices.SortFunc(part, func(a, b Delta) int { return cmp.Compare(a.LotID, b.LotID) })
		for some := range slices.Chunk(part, countersAtOnce) {
			query, args := moveQuery(some, now)
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveQuery adds to those of the counters that change.
func moveQuery(deltas []Delta, now time.Time) (query string, args []any) {
	set := make([]string, 0, 4)
	for _, c := range []struct {
		column string
		of     func(*Delta) int64
	}{
		{"claimed", func(d *Delta) int64 { return d.Units }},
		{"synced_seq", func(d *Delta) int64 { return d.Claims }},
		{"released_claims", func(d *Delta) int64 { return d.Released }},
	} {
		if !slices.ContainsFunc(deltas, func(d Delta) bool { return c.of(&d) != 0 }) {
			continue
		}
		if len(deltas) == 1 {
			args = append(args, c.of(&deltas[0]))
			set = append(set, c.column+" = "+c.column+" + ?")
			continue
		}
		set = append(set, c.column+" = "+c.column+" + "+sqlstore.Case(&args, deltas, (*Delta).id, func(d *Delta) any { return c.of(d) }))
	}
	args = append(args, now.UTC().Format(sqlstore.TimeLayout))
	for i := range deltas {
		args = append(args, deltas[i].LotID)
	}
	query = "UPDATE lots SET " + strings.Join(append(set, "updated_at = ?"), ", ") + " WHERE id IN " + sqlstore.Marks(len(deltas))
	return query, args
}
