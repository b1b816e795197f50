// Package writer writes the claims of the stream to MySQL, many in one transaction, and parks those that can never be written.
//
//	consumer ─ Submit ─▶ Writer ─ adder (striped sums) ─ one transaction a flush ─▶ claims, packets, stock_flushes, campaigns
//
// A flush commits only when the plain INSERT of all its claims succeeded and the counters of all its campaigns moved. When
// something is in the way (claims that MySQL has already, a row that MySQL refuses, a campaign that does not exist), the
// writer finds those claims, takes them out of the batch, and tries the rest again. So the counters always move by the sums of
// rows that this very transaction inserted, however often a claim is delivered, by whom, and wherever a process dies.
package writer
