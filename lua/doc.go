// Package lua is the only gate to what Dibs keeps in Redis. Any other package that needs something from Redis gets a verb here.
//
// A verb that changes a campaign is a script and the Go beside it (claim.lua, claim.go). Scripts are embedded byte for byte, called by
// their digest, and sent again when Redis has forgotten them. A script checks everything before its first write. Its outcomes are
// values, and its errors say whether it can have changed anything.
//
//	claim, release, adjust, push, move what happens to a campaign in Redis
//	load, evict, fence                 how a campaign gets into Redis and out of it
//	limits.go                          the limits of a user, and the record of what a user holds
//	claim_record.go                    the record of a claim
//	entry.go, groups.go, generation.go the claim stream, its consumer groups, and whether it lost something
//	signals.go                         how API processes hear how far MySQL is
//	inspect.go                         what reconcile compares with MySQL
//	durability.go, fsync.go            what must hold before an answer, and whether Redis can provide it
package lua
