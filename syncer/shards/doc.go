// Package shards moves units between the shards of a campaign, proves
// that it is sold out, and publishes its stock levels.
//
//	debit:   the giver takes free units out, and appends that to its stream
//	applied: MySQL has the row, so no loss of Redis can undo the debit
//	credit:  the taker gets the units, once per move and load
//
// In between, the units are in no lot. If the process dies, the row of
// stock_moves has no credit, and the leader completes it.
//
// MySQL decides a campaign's total. Settle credits raises to the
// shards, and debits reductions from them.
package shards
