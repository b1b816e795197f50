package split

import (
	"math/bits"
	"math/rand/v2"
)

// randomCut divides spare into n parts of at most capacity. Any excess over
// capacity is cut again among the parts below capacity, until none is left.
// Each round but the last fills at least one part. No step depends on
// positions, so none is favoured.
func randomCut(rng *rand.Rand, n int, spare, capacity int64) []int64 {
	parts := cut(rng, n, spare)
	over := trim(parts, capacity)
	for over > 0 {
		open := belowCapacity(parts, capacity)
		for i, more := range cut(rng, len(open), over) {
			parts[open[i]] += more
		}
		over = trim(parts, capacity)
	}
	return parts
}

func trim(parts []int64, capacity int64) int64 {
	var over int64
	for i, part := range parts {
		if part > capacity {
			over += part - capacity
			parts[i] = capacity
		}
	}
	return over
}

func belowCapacity(parts []int64, capacity int64) []int {
	open := make([]int, 0, len(parts))
	for i, part := range parts {
		if part < capacity {
			open = append(open, i)
		}
	}
	return open
}

// cut divides sum into n parts of 0 or more. Every division is equally
// likely, because in a row of sum units and n-1 bars every set of positions
// for the bars is. Drawing cut points independently from 0 to sum was
// rejected: ties favour the middle parts. It draws positions for the units or
// the bars, whichever are fewer.
func cut(rng *rand.Rand, n int, sum int64) []int64 {
	parts := make([]int64, n)
	bars := int64(n - 1)
	if sum < bars {
		for i, position := range positions(rng, int(sum), sum+bars) {
			parts[position-int64(i)]++ // i.e. the number of bars before unit i
		}
		return parts
	}
	before := int64(-1)
	for i, position := range positions(rng, n-1, sum+bars) {
		parts[i] = position - before - 1
		before = position
	}
	parts[n-1] = sum + bars - before - 1
	return parts
}

// positions draws k distinct numbers below n, in rising order,
// every set equally likely. k is at most half of n, so on
// average every other draw is new.
//
// It keeps them sorted in a table. Numbers are spread evenly, so
// a number's value determines its slot, or one nearby. This
// takes a third of the time of a map and a sort.
func positions(rng *rand.Rand, k int, n int64) []int64 {
	homes := 2 * k
	// number + 1, 0 is free; no number is more than k slots from home
	table := make([]int64, homes+k)
	for found := 0; found < k; {
		number := rng.Int64N(n)
		if insert(table, home(number, n, homes), number+1) {
			found++
		}
	}
	sorted := make([]int64, 0, k)
	for _, value := range table {
		if value != 0 {
			sorted = append(sorted, value-1)
		}
	}
	return sorted
}

// home is number×homes/n, by a product of 128 bits.
func home(number, n int64, homes int) int {
	high, low := bits.Mul64(uint64(number), uint64(homes))
	at, _ := bits.Div64(high, low, uint64(n))
	return int(at)
}

// insert adds value at or after slot at of a table that is
// sorted except for free slots, and shifts greater values up. It
// returns false if the value exists.
func insert(table []int64, at int, value int64) bool {
	for table[at] != 0 && table[at] < value {
		at++
	}
	if table[at] == value {
		return false
	}
	for value != 0 {
		table[at], value = value, table[at]
		at++
	}
	return true
}
