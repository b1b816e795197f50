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

	Transfers, Moved int64 // tseq and total, of a lot of a campaign of several shards
}

func (d *Delta) id() string { return d.LotID }

// MoveCounters moves the counters of lots, each of which is there once, and the sums of campaigns of several shards. It comes last in a
// transaction, so that hot rows are locked for these statements and the commit. Lots come before campaigns, in order of their ids.
func MoveCounters(ctx context.Context, tx sqlstore.Execer, deltas []Delta, now time.Time) error {
	_, err := moveCounters(ctx, tx, deltas, "", now)
	return err
}

// moveCounters is MoveCounters for the rows for which a condition is true. It returns how many there are of the rows that deltas is about.
func moveCounters(ctx context.Context, tx sqlstore.Execer, deltas []Delta, where string, now time.Time) (moved int64, err error) {
	var lots, whole []Delta
	sums := int64(0)
	for _, d := range deltas {
		campaignID, shard := models.SplitShardID(d.LotID)
		if shard == 0 {
			whole = append(whole, d)
			continue
		}
		lots = append(lots, d)
		if d.Units == 0 && d.Claims == 0 && d.Released == 0 {
			continue
		}
		at := slices.IndexFunc(whole, func(s Delta) bool { return s.LotID == campaignID })
		if at < 0 {
			at = len(whole)
			whole = append(whole, Delta{LotID: campaignID})
			sums++
		}
		whole[at].Units += d.Units
		whole[at].Claims += d.Claims
		whole[at].Released += d.Released
	}
	for _, part := range [][]Delta{lots, whole} {
		slices.SortFunc(part, func(a, b Delta) int { return cmp.Compare(a.LotID, b.LotID) })
		for some := range slices.Chunk(part, countersAtOnce) {
			query, args := moveQuery(some, now)
			n, err := sqlstore.Exec(ctx, tx, query+where, args...)
			if err != nil {
				return moved, err
			}
			moved += n
		}
	}
	return moved - sums, nil
}

// moveQuery adds to those of the counters that change.
func moveQuery(deltas []Delta, now time.Time) (query string, args []any) {
	set := make([]string, 0, 6)
	for _, c := range []struct {
		column string
		of     func(*Delta) int64
	}{
		{"claimed", func(d *Delta) int64 { return d.Units }},
		{"synced_seq", func(d *Delta) int64 { return d.Claims }},
		{"released_claims", func(d *Delta) int64 { return d.Released }},
		{"tseq", func(d *Delta) int64 { return d.Transfers }},
		{"total", func(d *Delta) int64 { return d.Moved }},
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

// deltasOf are the sums of a flush.
func deltasOf(sums map[string]*tally) []Delta {
	deltas := make([]Delta, 0, len(sums))
	for id, sum := range sums {
		deltas = append(deltas, Delta{LotID: id, Units: sum.units, Claims: sum.claims, Transfers: sum.transfers, Moved: sum.moved})
	}
	return deltas
}
