package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ticked is what an axis says of its values.
func ticked(log bool, values ...float64) (words []string) {
	for _, tick := range newAxis(log, values, 0, 100).ticks() {
		words = append(words, tickText(tick))
	}
	return words
}

func TestTicksAreRoundNumbersAroundTheValues(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		log    bool
		values []float64
		want   []string
	}{
		{false, nil, []string{"0", "0.5", "1"}},
		{false, []float64{0, 0}, []string{"0", "0.5", "1"}},
		{false, []float64{1}, []string{"0", "0.5", "1"}},
		{false, []float64{5, 4, 0}, []string{"0", "2", "4", "6"}},
		{false, []float64{663}, []string{"0", "200", "400", "600", "800"}},
		{false, []float64{1_000_000}, []string{"0", "500,000", "1,000,000"}},
		{true, nil, []string{"1", "10"}},
		{true, []float64{0}, []string{"1", "10"}},
		{true, []float64{5}, []string{"1", "10"}},
		{true, []float64{10}, []string{"10", "100"}},
		{true, []float64{1_000}, []string{"1,000", "10,000"}},
		{true, []float64{0, 0.5, 20}, []string{"0.1", "1", "10", "100"}},
		{true, []float64{100, 1_000}, []string{"100", "1,000"}},
		{true, []float64{248, 36_985}, []string{"100", "1,000", "10,000", "100,000"}},
	} {
		require.Equal(t, one.want, ticked(one.log, one.values...), "%v %v", one.log, one.values)
	}
}

// Every value has its place within the axis, and more is never further to the left.
func TestEveryValueHasItsPlaceOnItsAxis(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := rapid.Bool().Draw(rt, "log")
		least := 0.0
		if log {
			least = 1e-6
		}
		values := rapid.SliceOfN(rapid.Float64Range(least, 1e9), 1, 20).Draw(rt, "values")
		a := newAxis(log, values, 346, 700)
		for _, v := range values {
			require.GreaterOrEqual(rt, a.x(v), 346)
			require.LessOrEqual(rt, a.x(v), 700)
			for _, w := range values {
				if v < w {
					require.LessOrEqual(rt, a.x(v), a.x(w))
				}
			}
		}
		ticks := a.ticks()
		require.GreaterOrEqual(rt, len(ticks), 2)
		require.LessOrEqual(rt, len(ticks), 20)
		require.Equal(rt, 346, a.x(ticks[0]))
		require.LessOrEqual(rt, a.x(ticks[len(ticks)-1]), 700)
	})
}
