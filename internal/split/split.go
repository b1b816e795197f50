// Package split divides an amount of money into packets at random: exact to the
// minor unit, and no packet out of its bounds. It imports no other package of
// this module.
package split

import (
	crypto "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Method is a way to split, in the words of the API.
type Method string

// The methods of splitting. With the first two, the expected amount is the same
// at every position, Amount/Count, so that no one gains by being early or late.
const (
	// DoubleMean draws each packet uniformly from Min to twice the mean of what
	// is left (less Min), as chat red packets do. Packets are moderately
	// unequal; late ones vary more than early ones, around the same mean.
	DoubleMean Method = "double_mean"
	// RandomCut cuts the amount at random points: every way to divide it is
	// equally likely. Few large packets, many small ones.
	RandomCut Method = "random_cut"
	// Even makes all packets equal; the remainder goes to the first packets,
	// one minor unit each.
	Even Method = "even"
)

// Methods lists the methods.
func Methods() []Method { return []Method{DoubleMean, RandomCut, Even} }

const (
	// CountMax bounds the packets of one split.
	CountMax = 1_000_000
	// AmountMax bounds the amount to split, in minor units: inside the 2^53
	// that JSON readers and Lua hold exactly.
	AmountMax int64 = 1_000_000_000_000_000
)

// Request is what to split. Amounts are in minor units of one currency.
type Request struct {
	Count  int   // packets, 1 to CountMax
	Amount int64 // the sum of all packets, 1 to AmountMax
	Min    int64 // no packet is smaller; 0: 1
	Max    int64 // no packet is larger; 0: no bound
	Method Method

	// Seed makes the split repeatable, for tests: the same request gives the
	// same packets. Nil takes the system's random numbers, which cannot be
	// guessed.
	Seed *uint64
}

// Split returns Count amounts that add up to Amount, each from Min to Max. Its
// only error is a *RequestError, for a request that cannot be met.
func Split(r Request) ([]int64, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r = r.normal()
	spare := r.Amount - r.Min*int64(r.Count) // what is divided: the amount above the minima
	capacity := min(r.Max-r.Min, spare)      // how much of it one packet can take
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

// normal fills in the bounds that are not set.
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
