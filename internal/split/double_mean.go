package split

import "math/rand/v2"

// doubleMean divides spare into n parts of at most capacity. It draws each
// part uniformly from 0 to twice the mean of the rest. So the part's
// expectation is that mean, by induction the same at every position.
//
// If twice the mean exceeds capacity, it mirrors the draw: it draws the
// part's shortfall from capacity out of the total shortfall. So every draw is
// symmetric about the mean and nothing is clipped. The rest can always be
// divided: if it is at most half of its capacity, its mean stays within
// capacity even if the part gets nothing, and vice versa.
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

// aboveHalf reports whether 2×spare > left×capacity. It
// multiplies only where that cannot overflow.
func aboveHalf(spare, left, capacity int64) bool {
	return capacity <= 2*spare/left && 2*spare > left*capacity
}

// drawAround draws from 0 to twice the mean of sum over n, with exactly that
// mean as expectation. If twice the mean is fractional, the upper end is
// rounded up with the fraction's probability. Always rounding down would
// shift money from early parts to the last, and give early parts nothing if
// the mean is below one half. n is at least 2, so the result is at most sum.
func drawAround(rng *rand.Rand, sum, n int64) int64 {
	upper := 2 * sum / n
	fraction := 2 * sum % n
	if rng.Int64N(n) < fraction {
		upper++
	}
	return rng.Int64N(upper + 1)
}
