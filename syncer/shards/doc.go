// Package shards moves the units of a campaign between its lots, which are its shards and its reserve, and proves that it is sold out.
//
//	debit:  the giver takes free units out, and counts them for the taker ─▶ they are on its disk
//	credit: the taker counts all that the giver ever debited for it, and has what is new
//
// Both counts are cumulative: any process may send a credit any number of times. So a process that dies leaves nothing but units in flight,
// which the next mover to check brings to the taker. They are no one's until then, and never counted twice. Redis alone decides; MySQL gets
// a row of each.
package shards
