// Package shards moves units between the shards of a campaign, proves that it is sold out, and tells the lines that its stock crosses.
//
//	debit:   the giver takes free units out, and says so in its claim stream
//	applied: MySQL has the row, so no loss of Redis makes the giver forget it
//	credit:  the taker gets the units, once for each move and load
//
// Units in between are nobody's. A process that dies leaves them in a row of stock_moves that has no credit, which the leader completes.
// The total of a campaign is MySQL's: Settle credits shards what it was raised by, and debits what it was lowered by.
package shards
