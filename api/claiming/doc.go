// Package claiming is the path of a claim: claim.go and batch.go read and
// check it (package form), a lane accepts it for its campaign, and the lane's
// coalescer (package coalesce) puts the claims of many callers into one script
// call. In mode mysql the answer waits for the row (package rows).
//
//	POST ─▶ read, check ─▶ lane: known? rate? sold out? ─▶ coalescer
//	     ─▶ Claimer (one script call) ─▶ every caller
package claiming
