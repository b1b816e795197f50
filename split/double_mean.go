package split

import "math/rand/v2"

// doubleMean divides spare among n, none more than room. Each part is drawn evenly from 0 to twice the mean of what is left, so
// that its expectation is that mean, and by induction the same at every position.
//
// When twice the mean is more than room, the draw is mirrored: what the part lacks of room is drawn in the same way from what all
// parts lack. So a draw is always symmetric about the mean, nothing is clipped, and what is left can always be divided: the mean
// of a rest that is at most half of its room stays within room even if the part gets nothing, and the other way round.
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

// aboveHalf tells whether 2×spare > left×room. The product may not fit; where it can't matter it is not formed.
func aboveHalf(spare, left, room int64) bool {
	return room <= 2*spare/left && 2*spare > left*room
}

// drawAround draws from 0 to twice the mean of sum over n, with exactly that mean as its expectation: where twice the mean is no
// whole number, the upper end is the next one as often as the fraction says. Rounding it down would give early parts less,
// nothing at all where the mean is below one half, and all of that to the last ones. n is at least 2, so it is at most sum.
func drawAround(rng *rand.Rand, sum, n int64) int64 {
	upper, fraction := 2*sum/n, 2*sum%n
	if rng.Int64N(n) < fraction {
		upper++
	}
	return rng.Int64N(upper + 1)
}
