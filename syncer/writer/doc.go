// Package writer applies the claim streams to MySQL.
//
//	consumer ─ Add ─▶ adder (a cell per partition)
//	  ─ a flush takes all cells ─▶ one transaction
//
// One transaction writes claims, packets' owners, moves of units, a row
// of stock_flushes per lot, the counters, and the offsets.
//
// Offsets move by compare-and-set: if a flush's entries do not start at
// MySQL's offset, it writes nothing of that stream. So each entry
// counts once, whichever process reads it and wherever one dies. After
// an unknown commit the offset shows whether it happened.
//
// Three things keep a row from being written. None of them delays other rows:
//
//   - MySQL has it. After Redis lost entries, a stream is read from before
//     the offset.
//   - MySQL refuses it. Bisection finds it, and the same transaction parks it.
//   - Its lot is locked. Its claims are written, and its sums wait in
//     stock_flushes for the first writer that gets the lock.
package writer
