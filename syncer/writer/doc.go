// Package writer applies the claim streams to MySQL.
//
//	consumer ─ Add ─▶ adder (a cell per partition) ─ a flush takes all cells ─▶ one transaction
//
// MySQL keeps the offset of each stream in the transaction that writes what lies before it. A flush writes claims, packets'
// owners, moves of units, a row of stock_flushes for each lot, one UPDATE of all lots, and the offsets, which move by
// compare-and-set: a flush that does not find the offset where its entries begin writes nothing of that stream. So each
// entry counts once, whoever reads it, however often, and wherever a process dies. After an unknown commit the offset says
// what became of it.
//
// Three things keep a row from being written, and none of them holds up its neighbours:
//
//   - MySQL has it. A stream is read again from before the offset after Redis lost entries.
//   - MySQL refuses it. Halving finds it, and it is parked in the transaction of its neighbours.
//   - Somebody locks its lot. Its claims are written; its sums wait in their row of stock_flushes, and are added by the first
//     writer that gets the lock.
package writer
