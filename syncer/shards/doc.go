// Package shards moves the units of a campaign between its reserve and its shards, and proves that it is sold out.
//
//	grant:  MySQL {reserve less, shard more, move open} ─▶ Redis takes the move ─▶ MySQL {move done}
//	recall: MySQL {move open} ─▶ Redis gives up what is free, and keeps that ─▶ MySQL {shard less, reserve more, move done}
//
// A move is a row of stock_moves and touches one shard. It has a number, by which the shard knows it again: any process may take any
// step of an open move any number of times. So a process that dies leaves nothing but a move that the next one completes. Units that
// are on their way are nobody's: they are missing from the stock until the move is done, and never counted twice.
package shards
