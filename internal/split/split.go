// Package split divides an amount of money into random packets,
// exact to the minor unit, each within its bounds. It imports no
// other package of this module.
package split

import (
	crypto "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Method is a way to split, by its API name.
type Method string

// The methods. With the first two, the expected amount is Amount/Count at
// every position, so that being early or late gains nothing.
const (
	// DoubleMean draws each packet uniformly from Min to twice the mean of
	// the rest (less Min), as chat red packets do. Packets are moderately
	// unequal. Late ones vary more, around the same mean.
	DoubleMean Method = "double_mean"
	// RandomCut cuts the amount at random points. Every division is
	// equally likely: few large packets, many small ones.
	RandomCut Method = "random_cut"
	// Even makes all packets equal. The first packets get the
	// remainder, one minor unit each.
	Even Method = "even"
)

// Methods lists the methods.
func Methods() []Method { return []Method{DoubleMean, RandomCut, Even} }

const (
	// CountMax limits the packets of one split.
	CountMax = 1_000_000
	// AmountMax limits the amount, in minor units, below 2^53, which
	// JSON readers and Lua represent exactly.
	AmountMax int64 = 1_000_000_000_000_000
)

// Request describes a split. Amounts are in minor units of one currency.
type Request struct {
	Count  int   // packets, 1 to CountMax
	Amount int64 // the sum of all packets, 1 to AmountMax
	Min    int64 // smallest packet; 0: 1
	Max    int64 // largest packet; 0: no limit
	Method Method

	// Seed makes the split repeatable, for tests. Nil uses the
	// system's random numbers, which cannot be guessed.
	Seed *uint64
}

// Split returns Count amounts, each from Min to Max, that sum to Amount. Its
// only error is a *RequestError, if that is impossible.
func Split(r Request) ([]int64, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r = r.normal()
	spare := r.Amount - r.Min*int64(r.Count) // amount above the minima
	capacity := min(r.Max-r.Min, spare)      // limit of spare in one packet
	var parts []int64
	switch r.Method {
	case RandomCut:
		parts = randomCut(r.random(), r.Count, spare, capacity)
	case Even:
		parts = even(r.Count, spare)
	default:
		parts = doubleMean(r.random(), r.Count, spare, capacity)
	}
	for i := range parts {
		parts[i] += r.Min
	}
	return parts, nil
}

func (r Request) normal() Request {
	r.Min = max(r.Min, 1)
	if r.Max == 0 {
		r.Max = r.Amount
	}
	return r
}

func (r Request) random() *rand.Rand {
	var seed [32]byte
	if r.Seed == nil {
		crypto.Read(seed[:]) //nolint:gosec // it never fails: the program ends if the system has no random numbers
	} else {
		binary.LittleEndian.PutUint64(seed[:], *r.Seed)
	}
	return rand.New(rand.NewChaCha8(seed)) //nolint:gosec // seeded from crypto/rand, and cryptographically strong itself
}
