// Package writer applies the claim streams to MySQL.
//
//	consumer ─ Add ─▶ adder (a cell per partition) ─ a flush takes all cells ─▶ one transaction
//
// One transaction writes claims, packets' owners, moves of units, a row of
// stock_flushes per lot, the counters, and the offsets. Offsets move by
// compare-and-set: a flush whose entries do not begin at MySQL's offset writes
// nothing of that stream. So each entry counts once, whoever reads it and
// wherever a process dies. After an unknown commit the offset shows whether it
// happened.
//
// Three things keep a row from being written. None of them delays other rows:
//
//   - MySQL has it: after Redis lost entries, a stream is read from before the offset.
//   - MySQL refuses it: bisection finds it, and the same transaction parks it.
//   - Its lot is locked: its claims are written, and its sums wait in stock_flushes
//     for the first writer that gets the lock.
package writer
