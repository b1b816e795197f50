// Package claiming is the path of a claim: claim.go and batch.go read and
// check it, a lane accepts it for its campaign, and the lane's coalescer
// (package coalesce) puts the claims of many callers into one script call.
//
//	POST ─▶ read, check ─▶ lane: known? rate? sold out? ─▶ coalescer
//	     ─▶ Claimer (one script call) ─▶ every caller
//
// This path avoids reflection: bodies are read field by field, and answers
// are written by hand.
package claiming
