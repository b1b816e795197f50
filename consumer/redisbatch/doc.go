// Package redisbatch is a watermill message.Subscriber over Redis Streams for handlers that work in batches: they gather messages, commit
// them together, and acknowledge them afterwards.
//
// The stock subscriber of watermill-redisstream reads with COUNT 1 and waits for the ack before it reads on. One message is in flight,
// so a handler that commits once for many messages never sees more than one. This subscriber reads up to [Config.ReadCount] entries at
// once, keeps a bounded window of unacknowledged entries in flight, and acknowledges in bulk, never before the handler did:
//
//	XREADGROUP COUNT n ──▶ window ──▶ output channel ──▶ handler … Ack ──▶ XACK id id id …
//	       ▲                                               └ Nack ──▶ NackDelay ──▶ output channel
//	own pending entries, XAUTOCLAIM of dead consumers' entries
//
// It reads what redisstream.Publisher writes, and leaves the stream readable by the stock subscriber.
//
// # Which one to use
//
// Use the stock subscriber for streams of little traffic, or when each message is handled in a transaction of its own anyway. Use this one
// when messages are committed in batches, when a lost entry must be reported, or when what a dead process held must be taken over soon.
// With this subscriber handlers run concurrently and messages overtake each other; set [Config.Window] to 1 for strict order.
//
// # A message per entry, or per read
//
// By default each entry is one message, made by [Config.Unmarshaller]. With [Config.Batches] all entries of a read are one message, whose
// payload holds them in the format of [Marshal]. That saves a goroutine, a message and a context for each entry. Its handler calls
// [Unmarshal], and [Ack] for each entry that is done before the others. Ack of the message acknowledges the rest. Nack delivers
// what is left once more, each entry in a message of its own, so that one bad entry does not hold up its neighbors.
//
// # Promises
//
//   - Delivery is at least once. An acknowledged entry is delivered again only if Redis or this process dies before the XACK arrives.
//   - First deliveries come in stream order.
//   - An entry that the Unmarshaller refuses is delivered all the same, for the handler to reject: see [UnreadableKey].
//   - An entry that was trimmed before it was handled is logged and counted as lost.
//   - After a start, the entries that are pending under its own name come first. Those of consumers that are silent for
//     [Config.MinIdle] are claimed. Entries in flight are refreshed, however long their handlers take.
//   - Errors of Redis never end a subscription. A group that is gone is created again, from the first entry of the stream.
//   - A stop hands unfinished entries over: another consumer of the group can claim them at once. The Redis client stays open.
package redisbatch
