package models

import (
	"math/bits"
	"time"
)

// Claims' durations are counted in TookBuckets buckets, four for each
// doubling from 64 µs. Percentiles are within about 10 %.
const (
	TookBuckets = 72
	tookLeastLg = 6

	// TookPrefix begins a bucket's name among a campaign's counts. Its number
	// follows.
	TookPrefix = "took_"
)

// TookBucket returns a duration's bucket.
func TookBucket(took time.Duration) int {
	us := uint64(max(0, took.Microseconds()))
	lg := bits.Len64(us) - 1
	if lg < tookLeastLg {
		return 0
	}
	return min(4*(lg-tookLeastLg)+int(us>>(lg-2)&3), TookBuckets-1)
}

// TookBound is a bucket's upper bound.
func TookBound(bucket int) time.Duration {
	lg := tookLeastLg + bucket/4
	quarter := int64(bucket % 4)
	return time.Duration((5+quarter)<<(lg-2)) * time.Microsecond
}
