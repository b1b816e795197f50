package split

import "math/rand/v2"

// doubleMean divides spare into n parts, none more than capacity. It draws each
// part uniformly from 0 to twice the mean of what is left, so that the part's
// expectation is that mean, and by induction the same at every position.
//
// When twice the mean is more than capacity, it mirrors the draw: what the part
// lacks of capacity is drawn in the same way from what all parts lack. So every
// draw is symmetric about the mean, nothing is clipped, and the rest can always
// be divided: if the rest is at most half of its capacity, its mean stays
// within capacity even if the part gets nothing, and the other way round.
func doubleMean(rng *rand.Rand, n int, spare, capacity int64) []int64 {
	parts := make([]int64, n)
	for i := range n - 1 {
		left := int64(n - i)
		if aboveHalf(spare, left, capacity) {
			parts[i] = capacity - drawAround(rng, left*capacity-spare, left)
		} else {
			parts[i] = drawAround(rng, spare, left)
		}
		spare -= parts[i]
	}
	parts[n-1] = spare
	return parts
}

// aboveHalf reports whether 2×spare > left×capacity. The product is only formed
// where it cannot overflow.
func aboveHalf(spare, left, capacity int64) bool {
	return capacity <= 2*spare/left && 2*spare > left*capacity
}

// drawAround draws from 0 to twice the mean of sum over n, and its expectation
// is exactly that mean: where twice the mean is not a whole number, the upper
// end is rounded up as often as the fraction says. Rounding it down always
// would give early parts less, nothing at all where the mean is below one half,
// and the difference to the last parts. n is at least 2, so the result is at
// most sum.
func drawAround(rng *rand.Rand, sum, n int64) int64 {
	upper := 2 * sum / n
	fraction := 2 * sum % n
	if rng.Int64N(n) < fraction {
		upper++
	}
	return rng.Int64N(upper + 1)
}
