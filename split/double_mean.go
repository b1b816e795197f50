package split

import "math/rand/v2"

// doubleMean divides spare into n parts, none more than room. It draws each part uniformly from 0 to twice the mean of what is left, so
// that the part's expectation is that mean, and by induction the same at every position.
//
// When twice the mean is more than room, it mirrors the draw: what the part lacks of room is drawn in the same way from what all parts
// lack. So every draw is symmetric about the mean, nothing is clipped, and the rest can always be divided: if the rest is at most half
// of its room, its mean stays within room even if the part gets nothing, and the other way round.
func doubleMean(rng *rand.Rand, n int, spare, room int64) []int64 {
	parts := make([]int64, n)
	for i := range n - 1 {
		left := int64(n - i)
		if aboveHalf(spare, left, room) {
			parts[i] = room - drawAround(rng, left*room-spare, left)
		} else {
			parts[i] = drawAround(rng, spare, left)
		}
		spare -= parts[i]
	}
	parts[n-1] = spare
	return parts
}

// aboveHalf reports whether 2×spare > left×room. The product is only formed where it cannot overflow.
func aboveHalf(spare, left, room int64) bool {
	return room <= 2*spare/left && 2*spare > left*room
}

// drawAround draws from 0 to twice the mean of sum over n, and its expectation is exactly that mean: where twice the mean is not a whole
// number, the upper end is rounded up as often as the fraction says. Rounding it down always would give early parts less, nothing at all
// where the mean is below one half, and the difference to the last parts. n is at least 2, so the result is at most sum.
func drawAround(rng *rand.Rand, sum, n int64) int64 {
	upper := 2 * sum / n
	fraction := 2 * sum % n
	if rng.Int64N(n) < fraction {
		upper++
	}
	return rng.Int64N(upper + 1)
}
