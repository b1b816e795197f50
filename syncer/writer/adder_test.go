package writer

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

func addOne(a *adder, e models.Event, now func() time.Time) ([]part, int64) {
	return a.add([]models.RawEvent{{Event: e}}, []int{0}, now)
}

// While many add and one takes, every cell's sums are those of its own rows, and in the end nothing is missing or double.
func TestAdder_RowsAndSumsLeaveTogether(t *testing.T) {
	t.Parallel()
	const adders, each, limit = 16, 2000, 100
	a := newAdder(limit)
	var adding sync.WaitGroup
	for i := range adders {
		adding.Go(func() {
			for j := range each {
				id := fmt.Sprintf("%d-%d", i, j)
				addOne(a, models.Event{ID: id, CampaignID: fmt.Sprint("c", j%3), Shard: j % 2, Quantity: int64(1 + j%5), Seq: int64(j + 1)}, time.Now)
			}
		})
	}
	added := make(chan struct{})
	go func() { adding.Wait(); close(added) }()
	seen := make(map[string]bool)
	for done := false; !done || a.pending.Load() > 0; {
		select {
		case <-added:
			done = true
		default:
		}
		total := 0
		for _, c := range a.take(limit) {
			var rows []*row
			for i := range c.rows {
				rows = append(rows, &c.rows[i])
				seen[c.rows[i].event.ID] = true
			}
			require.Equal(t, sumOf(rows), c.sums)
			total += len(rows)
			a.release(c, nil)
		}
		require.LessOrEqual(t, total, limit)
	}
	require.Len(t, seen, adders*each)
	require.True(t, a.oldest().IsZero())
}

func TestAdder_TakesOldestFirst(t *testing.T) {
	t.Parallel()
	a := newAdder(4)
	base := time.Unix(1000, 0)
	for i := range 40 {
		addOne(a, models.Event{ID: fmt.Sprint(i), CampaignID: "c", Quantity: 1, Seq: 1}, func() time.Time { return base.Add(time.Duration(i)) })
	}
	var last time.Time
	for a.pending.Load() > 0 {
		require.False(t, a.oldest().Before(last))
		last = a.oldest()
		require.NotEmpty(t, a.take(4))
	}
}

func TestAdder_LetsNothingInAfterClose(t *testing.T) {
	t.Parallel()
	a := newAdder(10)
	_, pending := addOne(a, models.Event{}, time.Now)
	require.Equal(t, int64(1), pending)
	a.close()
	parts, _ := addOne(a, models.Event{}, time.Now)
	require.Empty(t, parts)
	require.Len(t, a.take(10), 1)
}
