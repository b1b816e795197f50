package split_test

import (
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/internal/split"
)

func seeded(r split.Request, seed uint64) split.Request {
	r.Seed = &seed
	return r
}

// check describes what is wrong with a request's packets. It
// uses big numbers.
func check(r split.Request, packets []int64) string {
	if len(packets) != r.Count {
		return "not as many packets as asked for"
	}
	sum := new(big.Int)
	for _, amount := range packets {
		if amount < max(r.Min, 1) {
			return "a packet below min"
		}
		if r.Max != 0 && amount > r.Max {
			return "a packet above max"
		}
		sum.Add(sum, big.NewInt(amount))
	}
	if sum.Cmp(big.NewInt(r.Amount)) != 0 {
		return "another sum"
	}
	return ""
}

// possible reports whether a request can be met, in big numbers.
func possible(r split.Request) bool {
	least, most := big.NewInt(max(r.Min, 1)), big.NewInt(r.Max)
	if r.Max == 0 {
		most.SetInt64(r.Amount)
	}
	n, amount := big.NewInt(int64(r.Count)), big.NewInt(r.Amount)
	return r.Count >= 1 && r.Count <= split.CountMax && r.Amount >= 1 && r.Amount <= split.AmountMax &&
		r.Min >= 0 && r.Max >= 0 && r.Max <= split.AmountMax && slices.Contains(split.Methods(), r.Method) &&
		least.Cmp(most) <= 0 && new(big.Int).Mul(n, least).Cmp(amount) <= 0 && new(big.Int).Mul(n, most).Cmp(amount) >= 0
}

// hold runs a request and returns the first violation.
func hold(r split.Request) string {
	packets, err := split.Split(r)
	if possible(r) != (err == nil) {
		return "refused what can be, or the other way round"
	}
	if err == nil {
		return check(r, packets)
	}
	return ""
}

// requests draws bounds near the limit of the possible, and others.
var requests = rapid.Custom(func(t *rapid.T) split.Request {
	r := split.Request{
		Count:  rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 300)).Draw(t, "count"),
		Method: rapid.SampledFrom(split.Methods()).Draw(t, "method"),
	}
	r.Min = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 10), rapid.Int64Range(0, split.AmountMax/300)).Draw(t, "min")
	least := max(r.Min, 1) * int64(r.Count)
	r.Amount = rapid.OneOf(
		rapid.Int64Range(least-1, least+3), rapid.Int64Range(least, 4*least), rapid.Int64Range(0, split.AmountMax+1),
	).Draw(t, "amount")
	mean := r.Amount / int64(r.Count)
	r.Max = rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(mean-1, mean+2), rapid.Int64Range(mean, 3*mean+1), rapid.Int64Range(0, split.AmountMax+1),
	).Draw(t, "max")
	return seeded(r, rapid.Uint64().Draw(t, "seed"))
})

func TestSumBoundsAndRefusalsAreExact(t *testing.T) {
	t.Parallel()
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		r := requests.Draw(t, "request")
		if possible(r) {
			met++
		}
		if wrong := hold(r); wrong != "" {
			t.Fatal(wrong)
		}
	})
	require.Positive(t, met, "some requests could be met")
}

func FuzzSplit(f *testing.F) {
	f.Add(100, int64(10_000), int64(1), int64(300), "double_mean", uint64(1))
	f.Add(3, int64(8), int64(2), int64(3), "random_cut", uint64(2))
	f.Add(7, int64(100), int64(0), int64(0), "even", uint64(3))
	f.Add(999, split.AmountMax, int64(1_000_000_000), int64(1_000_000_000), "random_cut", uint64(4))
	f.Add(-1, int64(-1), int64(-1), int64(-1), "", uint64(5))
	f.Add(2, int64(1<<62), int64(1<<62), int64(1<<62), "double_mean", uint64(6))
	f.Fuzz(func(t *testing.T, count int, amount, least, most int64, method string, seed uint64) {
		if count <= split.CountMax {
			count %= 1000 // a million packets take half a second
		}
		r := split.Request{Count: count, Amount: amount, Min: least, Max: most, Method: split.Method(method), Seed: &seed}
		if wrong := hold(r); wrong != "" {
			t.Fatalf("%s: %+v", wrong, r)
		}
	})
}

func TestRefusalsNameTheField(t *testing.T) {
	t.Parallel()
	good := split.Request{Count: 10, Amount: 1000, Method: split.Even}
	for want, change := range map[string]func(r *split.Request){
		"split: must be double_mean, random_cut or even":                                func(r *split.Request) { r.Method = "halves" },
		"count: must be 1 to 1000000":                                                   func(r *split.Request) { r.Count = 0 },
		"amount: must be 1 to 1000000000000000":                                         func(r *split.Request) { r.Amount = split.AmountMax + 1 },
		"min: must be 0 to 1000000000000000":                                            func(r *split.Request) { r.Min = -1 },
		"max: must be 0 to 1000000000000000":                                            func(r *split.Request) { r.Max = split.AmountMax + 1 },
		"max: must be at least min, which is 20":                                        func(r *split.Request) { r.Min, r.Max = 20, 19 },
		"amount: must be at least 10 × min, which is 101":                               func(r *split.Request) { r.Min = 101 },
		"amount: must be at least 1001 × min, which is 1":                               func(r *split.Request) { r.Count = 1001 },
		"max: must be at least 100: 10 packets of at most 99 make less than the amount": func(r *split.Request) { r.Max = 99 },
	} {
		bad := good
		change(&bad)
		packets, err := split.Split(bad)
		require.ErrorIs(t, err, split.ErrRequest)
		require.EqualError(t, err, "split: bad request: "+want)
		require.Nil(t, packets)
	}
	require.NoError(t, good.Validate())
}

func TestEvenGivesTheRestToTheFirst(t *testing.T) {
	t.Parallel()
	packets, err := split.Split(split.Request{Count: 4, Amount: 11, Min: 2, Max: 3, Method: split.Even})
	require.NoError(t, err)
	require.Equal(t, []int64{3, 3, 3, 2}, packets)
}

func TestASeedRepeatsAndNoSeedDoesNot(t *testing.T) {
	t.Parallel()
	for _, method := range []split.Method{split.DoubleMean, split.RandomCut} {
		r := split.Request{Count: 50, Amount: 1_000_000, Method: method}
		first, again, other := packets(t, seeded(r, 1)), packets(t, seeded(r, 1)), packets(t, seeded(r, 2))
		require.Equal(t, first, again)
		require.NotEqual(t, first, other)
		one, another := packets(t, r), packets(t, r)
		require.NotEqual(t, one, another)
	}
}

func packets(t *testing.T, r split.Request) []int64 {
	t.Helper()
	got, err := split.Split(r)
	require.NoError(t, err)
	return got
}

// The largest request, with bounds that leave it plenty, little
// and no capacity.
func TestAMillionPackets(t *testing.T) {
	t.Parallel()
	mean := split.AmountMax / split.CountMax
	for _, method := range split.Methods() {
		for _, most := range []int64{0, mean + mean/5, mean} {
			r := seeded(split.Request{Count: split.CountMax, Amount: split.AmountMax, Max: most, Method: method}, 7)
			require.Empty(t, hold(r), "%s, max %d", method, most)
		}
	}
}
