// Package claiming is the path of a claim: claim.go and batch.go read and check
// it, a lane takes it for its campaign, and the coalescer of the lane puts the
// claims of many callers into one script call.
//
//	POST ─▶ read, check ─▶ lane: known? rate? sold out? ─▶ coalescer ─▶ Claimer (one script call) ─▶ every waiter
//
// Bodies are read field by field and answers are written by hand: no reflection
// on this path.
package claiming
