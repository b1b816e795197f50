// Package split divides one amount of money into packets: by chance, exactly to the minor unit, no packet out of its bounds.
// It knows nothing of campaigns, stores or HTTP, and imports nothing of ours.
package split

import (
	crypto "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// Method is a way to split, in the words of the API.
type Method string

// The methods of splitting. Under each of the first two every position can expect the same amount, Amount/Count, so that nobody
// gains by being early or late.
const (
	// DoubleMean draws each packet evenly from Min to twice the mean of what is left (less Min), as chat red packets do. Packets
	// are moderately unequal; late ones vary more than early ones, around the same mean.
	DoubleMean Method = "double_mean"
	// RandomCut cuts the amount at random points: every way to divide it is equally likely. Few large packets, many small ones.
	RandomCut Method = "random_cut"
	// Even gives everybody the same; what does not divide goes to the first packets, one minor unit each.
	Even Method = "even"
)

// Methods lists the methods.
func Methods() []Method { return []Method{DoubleMean, RandomCut, Even} }

const (
	// CountMax bounds the packets of one split.
	CountMax = 1_000_000
	// AmountMax bounds the amount to split, in minor units: inside the 2^53 that JSON readers and Lua hold exactly.
	AmountMax int64 = 1_000_000_000_000_000
)

// Request says what to split. Amounts are in minor units of one currency.
type Request struct {
	Count  int   // packets, 1 to CountMax
	Amount int64 // the sum of all packets, 1 to AmountMax
	Min    int64 // no packet is smaller; 0 stands for 1
	Max    int64 // no packet is larger; 0 is no bound
	Method Method

	// Seed makes the split repeatable, for tests: the same request gives the same packets. Nil draws from the system's source of
	// chance, which nobody can guess.
	Seed *uint64
}

// Split returns Count amounts that add up to Amount, each of them from Min to Max. Its only error is a *RequestError, for a
// request that can't be met.
func Split(r Request) ([]int64, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r = r.normal()
	spare := r.Amount - r.Min*int64(r.Count) // what is divided: all that is above the minima
	room := min(r.Max-r.Min, spare)          // how much of it one packet can take
	var parts []int64
	switch r.Method {
	case RandomCut:
		parts = randomCut(r.chance(), r.Count, spare, room)
	case Even:
		parts = even(r.Count, spare)
	default:
		parts = doubleMean(r.chance(), r.Count, spare, room)
	}
	for i := range parts {
		parts[i] += r.Min
	}
	return parts, nil
}

// normal fills in the bounds that were left out.
func (r Request) normal() Request {
	r.Min = max(r.Min, 1)
	if r.Max == 0 {
		r.Max = r.Amount
	}
	return r
}

func (r Request) chance() *rand.Rand {
	var seed [32]byte
	if r.Seed == nil {
		crypto.Read(seed[:]) //nolint:gosec // it never fails: the program ends if the system has no chance to give
	} else {
		binary.LittleEndian.PutUint64(seed[:], *r.Seed)
	}
	return rand.New(rand.NewChaCha8(seed)) //nolint:gosec // seeded from crypto/rand, and cryptographically strong itself
}
