// Package lots loads lots into Redis and evicts them.
//
// A lot is a campaign of one shard, or one shard of a campaign. It is
// away, not live, if Redis lacks it, if it is of an older generation
// than its partition, or while it has a loader's token. It
// stays away until it is needed: an API process loads it for a claim,
// the leading syncer for a decision or after a dead loader.
//
//		fence ─▶ MySQL at the tip ─▶ number ─▶ stage rows ─▶ load.lua
//		  ─▶ entry lot.loaded ─▶ the writer records it
//
//	 1. fence.lua stores the loader's token, a lease.
//	    From here on no claim is accepted.
//	 2. MySQL has applied the stream to its tip, and Redis has the entry at
//	    MySQL's offset. For a shard this covers all shards of its campaign, as
//	    moves cross them.
//	 3. MySQL numbers the load: its epoch. A later loader's number is higher,
//	    which the snapshot of the first detects.
//	 4. One snapshot of MySQL is staged in keys of its own, and its counters are
//	    corrected. A claim whose release is still in the outbox counts as live.
//	 5. load.lua commits it if token and generation still match, and appends
//	    lot.loaded. Only that entry records the load in MySQL.
//
// # Loss
//
// If the entry at MySQL's offset is missing, Redis lost data. The
// partition gets a new generation, so one write makes all its lots
// away; see package consumer.
//
// If that entry exists but a caller saw more of a lot than Redis has, a
// lagging replica took over: the usual failover. claim.lua stops the
// lot, and processes report what they saw. Then resume.lua continues
// after that, without a load.
//
// Units sold without a row are lost, and stay taken until an operator
// gives them up. Of packets, those with the highest positions are
// withheld. A restored MySQL reads the stream from its own offset on,
// and a load made of newer rows is repeated.
package lots
