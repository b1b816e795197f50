// Package lots brings lots into Redis and takes them out again.
//
// A lot, which is a campaign of one shard or one shard of a campaign, is live or away. It is away when Redis does not hold it, when its
// partition has a newer generation than the lot, and while a loader's token is in it. Whoever needs it loads it: an API process whose
// claim finds it away, else the leading syncer.
//
//		fence ─▶ MySQL at the tip ─▶ number ─▶ rows staged ─▶ load.lua ─▶ entry lot.loaded ─▶ the writer notes it
//
//	 1. fence.lua leaves the loader's token, also where Redis has no lot. Nothing is claimed from here on. The token is a lease.
//	 2. MySQL has applied the stream to its tip, and Redis has the entry at MySQL's offset: neither server lacks what the other has.
//	    Of a shard that is so for the partitions of all shards, as moves cross them.
//	 3. MySQL hands out the number of the load, its epoch. Another loader that comes between takes a higher one, and the snapshot of
//	    the first finds that.
//	 4. One snapshot of MySQL is staged beside what Redis may hold: claims with their keys, what users have, packets that no one took.
//	    Claims whose release waits in the outbox count as live: the release is brought to Redis later. Counters that differ from the rows are
//	    put right.
//	 5. load.lua puts it in force if the token and the generation are the loader's still, and appends lot.loaded. Only that entry, applied
//	    by the writer, tells MySQL of the load.
//
// # Loss
//
// Redis lost data if the entry at MySQL's offset is gone. The reader of the stream finds that, or anybody who waits for step 2. Then the
// partition gets a new generation, see consumer: one write takes all its lots away, and what the stream still has is applied first. Each
// lot is loaded when it is needed.
//
// A caller may have seen more of a lot than Redis has, though the entry is there: a replica that lagged took over. claim.lua stops the
// lot. Processes report what they saw, for a second, and then the lot goes on behind that under the next epoch, without being loaded: see
// resume.lua. This is the usual failover.
//
// What was sold and has no row is lost: units sold are the most that anybody saw, less those of rows. Lost units stay taken; nobody was
// told that they are free. An operator may give them up. Of packets those with the highest positions are withheld.
//
// A MySQL that was restored reads the stream from its own offset on. A load that was made of more than it has at the entry of the load is
// made again.
package lots
