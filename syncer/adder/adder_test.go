package adder_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/adder"
)

func claims(campaign string, after event.Offset, n int) (events []event.Raw, upto event.Offset) {
	for i := range n {
		seq := after.Read + int64(i) + 1
		events = append(events, event.Raw{Event: event.Event{
			Type: event.ClaimAccepted, ID: fmt.Sprint(campaign, "-", seq), CampaignID: campaign, Quantity: 2, Seq: seq,
			At: models.TimeFromMs(1000 + seq),
		}})
		upto = event.Offset{EntryID: fmt.Sprint(seq, "-0"), EventID: events[i].ID, Read: seq}
	}
	return events, upto
}

var start = event.Offset{EntryID: event.NoEntry}

func read(partition int, turn int64, events []event.Raw, upto event.Offset) *event.Read {
	return &event.Read{Partition: partition, Turn: turn, Events: events, Upto: upto}
}

// Readers of many partitions add while a flush takes repeatedly. Each
// take continues the one before, and its sums are those of its rows.
func TestAdder_NothingIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	const partitions, reads, each = 8, 200, 7
	a := adder.New(partitions, partitions*50, time.Now)
	var readers sync.WaitGroup
	for p := range partitions {
		turn := a.Begin(p, start)
		readers.Go(func() {
			for n, at := 0, start; n < reads; n++ {
				room, err := a.Free(t.Context(), p, turn)
				if err != nil {
					t.Error(err)
					return
				}
				events, upto := claims(fmt.Sprint("c", p), at, min(each, room))
				if err := a.Add(read(p, turn, events, upto)); err != nil {
					t.Error(err)
					return
				}
				at = upto
			}
		})
	}
	done := make(chan struct{})
	go func() { readers.Wait(); close(done) }()
	last := make(map[int]event.Offset)
	take := func() {
		for _, taken := range a.SumThenReset() {
			if from, some := last[taken.Partition]; some {
				require.Equal(t, from, taken.From)
			} else {
				require.Equal(t, start, taken.From)
			}
			n := 0
			for _, read := range taken.Reads {
				n += len(read.Events)
			}
			require.EqualValues(t, taken.Upto.Read-taken.From.Read, n)
			last[taken.Partition] = taken.Upto
			lot := adder.Lot{CampaignID: fmt.Sprint("c", taken.Partition)}
			require.Equal(t, &adder.Tally{
				Units: 2 * int64(n), Claims: int64(n), FirstSeq: taken.From.Read + 1, LastSeq: taken.Upto.Read,
				FirstMs: 1001 + taken.From.Read,
			}, taken.Sums[lot])
		}
	}
	for running := true; running; {
		select {
		case <-a.Added():
		case <-done:
			running = false
		}
		take()
	}
	require.Len(t, last, partitions)
	for p, upto := range last {
		require.Positive(t, upto.Read, "partition %d", p)
	}
	require.Zero(t, a.Sum().Entries)
}

func TestAdder_RefusesOlderTurns(t *testing.T) {
	t.Parallel()
	a := adder.New(2, 100, time.Now)
	first := a.Begin(0, start)
	events, upto := claims("c", start, 3)
	require.NoError(t, a.Add(read(0, first, events, upto)))
	require.Equal(t, 3, a.Sum().Entries)

	second := a.Begin(0, start)
	require.Zero(t, a.Sum().Entries, "the cell is emptied")
	require.ErrorIs(t, a.Add(read(0, first, events, upto)), adder.ErrTurn)
	_, err := a.Free(t.Context(), 0, first)
	require.ErrorIs(t, err, adder.ErrTurn)
	a.End(0, first)
	require.NoError(t, a.Add(read(0, second, events, upto)), "the end of an older turn does not end this one")
	a.End(0, second)
	require.ErrorIs(t, a.Add(read(0, second, events, upto)), adder.ErrTurn)
	require.Empty(t, a.SumThenReset())
}

func TestAdder_AFullCellStopsItsReaderAlone(t *testing.T) {
	t.Parallel()
	a := adder.New(2, 20, time.Now)
	turn := a.Begin(0, start)
	other := a.Begin(1, start)
	events, upto := claims("c", start, 10)
	require.NoError(t, a.Add(read(0, turn, events, upto)))
	require.True(t, a.Sum().IsFull)
	room, err := a.Free(t.Context(), 1, other)
	require.NoError(t, err)
	require.Equal(t, 10, room)

	waited := make(chan int)
	go func() {
		room, _ := a.Free(t.Context(), 0, turn)
		waited <- room
	}()
	require.Len(t, a.SumThenReset(), 1)
	require.Equal(t, 10, <-waited)
}

func TestAdder_MovesThroughWhatHasNoRow(t *testing.T) {
	t.Parallel()
	a := adder.New(1, 100, time.Now)
	turn := a.Begin(0, start)
	upto := event.Offset{EntryID: "9-0", EventID: "last", Read: 3}
	require.NoError(t, a.Add(&event.Read{
		Turn: turn, Upto: upto,
		Events: []event.Raw{
			{Event: event.Event{Type: event.CampaignSoldOut, ID: "x"}},
			{Event: event.Event{Type: event.UnitsDebited, ID: "y", CampaignID: "c", Shard: 1, Quantity: 5}},
			{Payload: []byte("?"), Unreadable: "no JSON"},
		},
	}))
	taken := a.SumThenReset()
	require.Len(t, taken, 1)
	require.Equal(t, upto, taken[0].Upto)
	require.Equal(t, adder.Sums{{CampaignID: "c", Shard: 1}: {Moved: -5}}, taken[0].Sums)
}
