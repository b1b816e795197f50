// Package syncer keeps MySQL: the store, the writer that brings claims from the stream into it, the hydrator that brings
// campaigns from it into Redis, and the syncer role that trims the streams and completes changes.
//
//	consumer ─ Submit ─▶ Writer ─ adder (striped sums) ─ one transaction a flush ─▶ claims, stock_flushes, campaigns
//	api ─ Create, Change ─▶ Campaigns ─ MySQL first, then Redis
//	api ─ Hydrate ─▶ Hydrator ─ a campaign that was never loaded, into Redis
//	Syncer.Run ─▶ Trimmer (streams, behind every registered group) · Sweeper (changes that Redis does not have yet)
//
// A flush commits only when the plain INSERT of every one of its claims went in and the books of every one of its
// campaigns moved. Whatever stands in the way (claims that are there already, a row that cannot be, a campaign that does
// not exist) is found, taken out, and the rest is tried again: so the sums that move the books are always those of rows
// that were just inserted, whatever is delivered twice, by whom, and wherever a process dies.
package syncer
