package split_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/split"
)

// zMax limits the deviation, in standard errors, of a position's
// mean from amount/count. 5 is exceeded by chance once in 1.7
// million positions. Seeds are fixed, so a pass is repeatable.
const zMax = 5

// splitter is a split under test: Split, and the broken variants below.
type splitter func(r split.Request) []int64

func ours(t *testing.T) splitter {
	t.Helper()
	return func(r split.Request) []int64 {
		packets, err := split.Split(r)
		require.NoError(t, err)
		return packets
	}
}

// drift splits runs times, each with its own seed. It returns
// the position whose mean is furthest from amount/count, and the
// deviation in standard errors. It is infinite for a position
// that never varies and is not amount/count.
func drift(f splitter, r split.Request, runs int) (position int, z float64) {
	sums, squares := make([]float64, r.Count), make([]float64, r.Count)
	mean := float64(r.Amount) / float64(r.Count)
	for seed := range runs {
		for i, amount := range f(seeded(r, uint64(seed))) {
			off := float64(amount) - mean
			sums[i] += off
			squares[i] += off * off
		}
	}
	for i := range sums {
		off := sums[i] / float64(runs)
		deviation := math.Sqrt(squares[i]/float64(runs) - off*off)
		if far := math.Abs(off) / (deviation / math.Sqrt(float64(runs))); off != 0 && far > z {
			position, z = i, far
		}
	}
	return position, z
}

// tables are requests for comparing positions: plenty, less than
// a unit each, tight bounds, two packets.
func tables(method split.Method) []split.Request {
	return []split.Request{
		{Count: 20, Amount: 20_000, Method: method},
		{Count: 50, Amount: 65, Method: method},
		{Count: 20, Amount: 20_000, Min: 500, Max: 3_000, Method: method},
		{Count: 20, Amount: 20_000, Max: 1_500, Method: method},
		{Count: 20, Amount: 20_000, Max: 1_001, Method: method},
		{Count: 30, Amount: 80, Max: 3, Method: method},
		{Count: 2, Amount: 5, Method: method},
		{Count: 10, Amount: split.AmountMax, Max: split.AmountMax / 4, Method: method},
	}
}

func TestNoPositionIsFavoured(t *testing.T) {
	t.Parallel()
	for _, method := range []split.Method{split.DoubleMean, split.RandomCut} {
		for _, r := range tables(method) {
			t.Run(fmt.Sprintf("%s/%d_in_%d_max_%d", method, r.Amount, r.Count, r.Max), func(t *testing.T) {
				t.Parallel()
				position, z := drift(ours(t), r, 6_000)
				require.Less(t, z, float64(zMax), "position %d of %d", position, r.Count)
			})
		}
	}
}

// A mean could be kept up by a few large packets. So the medians
// are compared: half of the last packets of a double mean are at
// least half as large as half of the first. (The first one's
// median is the mean; the last one's is lower.)
func TestTheLastIsNotStarved(t *testing.T) {
	t.Parallel()
	r := split.Request{Count: 100, Amount: 100_000, Method: split.DoubleMean}
	var first, last []int64
	for seed := range uint64(2_000) {
		packets := ours(t)(seeded(r, seed))
		first, last = append(first, packets[0]), append(last, packets[r.Count-1])
	}
	require.InDelta(t, 1000, median(first), 50)
	require.Greater(t, median(last), 500.0)
}

func median(amounts []int64) float64 {
	slices.Sort(amounts)
	return float64(amounts[len(amounts)/2])
}

// 6 above the minima can be divided among 4 in 84 ways. Chi-square with 83
// degrees of freedom exceeds 147 once in 50,000.
func TestEveryCutIsEquallyLikely(t *testing.T) {
	t.Parallel()
	for _, spare := range []int64{6, 2} { // more units than bars, and fewer
		r := split.Request{Count: 4, Amount: 4 + spare, Method: split.RandomCut}
		ways, bound := map[int64]int{6: 84, 2: 10}[spare], map[int64]float64{6: 147, 2: 38}[spare]
		seen, chi := chiSquare(ours(t), r, ways, 42_000)
		require.Equal(t, ways, seen, "every way was seen")
		require.Less(t, chi, bound)
		_, chi = chiSquare(tiedCuts, r, ways, 42_000)
		require.Greater(t, chi, bound, "the control is caught")
	}
}

// The first of 10 packets from 1000 above the minima is 0 to 200, all equally
// likely. Chi-square with 200 degrees of freedom exceeds 293 once in 50,000.
func TestADoubleMeanIsEvenlySpread(t *testing.T) {
	t.Parallel()
	const runs = 201 * 100
	counts := make([]float64, 201)
	for seed := range uint64(runs) {
		counts[ours(t)(seeded(split.Request{Count: 10, Amount: 1_010, Method: split.DoubleMean}, seed))[0]-1]++
	}
	var chi float64
	for _, count := range counts {
		chi += (count - 100) * (count - 100) / 100
	}
	require.Less(t, chi, 293.0)
}

func chiSquare(f splitter, r split.Request, ways, runs int) (seen int, chi float64) {
	counts := map[string]float64{}
	for seed := range runs {
		counts[fmt.Sprint(f(seeded(r, uint64(seed))))]++
	}
	expected := float64(runs) / float64(ways)
	chi = expected * float64(ways-len(counts)) // ways that never occurred
	for _, count := range counts {
		chi += (count - expected) * (count - expected) / expected
	}
	return len(counts), chi
}

// The control: biased splits that keep sum and bounds, each with
// a request that reveals it.
func TestBiasedSplittersAreCaught(t *testing.T) {
	t.Parallel()
	for name, biased := range map[string]struct {
		split   splitter
		request split.Request
	}{
		"first come first served": {greedy, split.Request{Count: 20, Amount: 20_000}},
		"cut points with ties":    {tiedCuts, split.Request{Count: 50, Amount: 65}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				require.Empty(t, check(biased.request, biased.split(seeded(biased.request, seed))), "it keeps sum and bounds")
			}
			_, z := drift(biased.split, biased.request, 6_000)
			require.Greater(t, z, float64(2*zMax))
		})
	}
}

func dice(r split.Request) *rand.Rand { return rand.New(rand.NewPCG(*r.Seed, 1)) }

// greedy draws from all that later packets don't need.
func greedy(r split.Request) []int64 {
	return oneByOne(r, func(rng *rand.Rand, spare, _ int64) int64 { return rng.Int64N(spare + 1) })
}

func oneByOne(r split.Request, draw func(rng *rand.Rand, spare, left int64) int64) []int64 {
	rng, least := dice(r), max(r.Min, 1)
	spare := r.Amount - least*int64(r.Count)
	packets := make([]int64, r.Count)
	for i := range packets {
		above := spare
		if left := int64(r.Count - i); left > 1 {
			above = draw(rng, spare, left)
		}
		packets[i], spare = least+above, spare-above
	}
	return packets
}

// tiedCuts draws each cut point independently.
func tiedCuts(r split.Request) []int64 {
	rng := dice(r)
	spare := r.Amount - int64(r.Count)
	points := []int64{0, spare}
	for range r.Count - 1 {
		points = append(points, rng.Int64N(spare+1))
	}
	slices.Sort(points)
	packets := make([]int64, r.Count)
	for i := range packets {
		packets[i] = 1 + points[i+1] - points[i]
	}
	return packets
}
