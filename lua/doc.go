// Package lua has the scripts that change campaigns in Redis, each
// beside its Go caller (claim.lua, claim.go). It also reads the same
// keys and the claim streams.
//
// Scripts are embedded byte for byte and called by digest. They are sent
// again if Redis has lost them. A script checks everything before its first
// write. Outcomes are values; errors say whether anything may have changed.
//
//	claim, release, adjust, push, pause changes of a campaign
//	debit, credit (move.go)             moves of units between shards
//	load, resume, evict, fence          loading and evicting (lots.go)
//	limits.go                           a user's limits and record
//	claim_record.go                     the record of a claim
//	entry.go, groups.go, signals.go     claim streams, groups, MySQL's offsets
//	inspect.go                          what reconcile compares with MySQL
//
// Package internal/redisconn makes clients and checks the servers.
// Package internal/softstate has other state that processes share.
package lua
