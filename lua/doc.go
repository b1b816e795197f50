// Package lua holds the scripts that change campaigns in Redis, each with its Go caller beside it
// (claim.lua, claim.go), and what reads the same keys and the claim streams.
//
// Scripts are embedded byte for byte, called by their digest, and sent again when Redis has
// forgotten them. A script checks everything before its first write. Its outcomes are values, and
// its errors say whether it can have changed anything.
//
//	claim, release, adjust, push, move what happens to a campaign in Redis
//	load, evict, fence                 how a campaign gets into Redis and out of it
//	limits.go                          the limits of a user, and the record of what a user holds
//	claim_record.go                    the record of a claim
//	entry.go, groups.go, signals.go    the claim stream, its consumer groups, how far MySQL is
//	inspect.go                         what reconcile compares with MySQL
//
// Clients come from internal/redisconn, which also checks the servers. What processes share beside
// the claims is internal/softstate.
package lua
