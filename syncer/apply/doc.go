// Package apply applies a batch of the claim streams in one transaction:
// claims, packets' owners, moves of units, decisions, a row of
// stock_flushes per lot, the counters, and the offsets.
//
// Offsets move by compare-and-set: if a batch's entries do not start at
// MySQL's offset, it writes nothing. So each entry counts once, whichever
// process reads it and wherever one dies.
//
// Three things keep a row from being written. None of them delays other rows:
//
//   - MySQL has it. After Redis lost entries, a stream is read from before
//     the offset.
//   - MySQL refuses it. Bisection finds it, and the same transaction parks it.
//   - Its lot is locked. Its claims are written, and its sums wait in
//     stock_flushes for the first writer that gets the lock.
package apply
