// Package writer brings claims from the stream into MySQL, many in one transaction, and parks those that can never be written.
//
//	consumer ─ Submit ─▶ Writer ─ adder (striped sums) ─ one transaction a flush ─▶ claims, packets, stock_flushes, campaigns
//
// A flush commits only when the plain INSERT of every one of its claims went in and the books of every one of its campaigns
// moved. Whatever stands in the way (claims that are there already, a row that cannot be stored, a campaign that does not
// exist) is found and taken out, and the rest is tried again. So the sums that move the books are always those of rows that
// were just inserted, whatever is delivered twice, by whom, and wherever a process dies.
package writer
