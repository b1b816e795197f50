// Package redisbatch is a watermill message.Subscriber over Redis
// Streams. It is for handlers that collect messages, commit them
// together, and acknowledge them afterwards.
//
// The subscriber of watermill-redisstream reads one entry and waits for
// its ack, so a handler never has two messages at once. This one reads
// up to [Config.ReadCount] entries, keeps a bounded window in flight,
// and acknowledges in bulk after the handler:
//
//	XREADGROUP COUNT n ─▶ window ─▶ channel ─▶ handler … Ack ─▶ XACK id id …
//	       ▲                           ▲              └ Nack ─▶ NackDelay ─┐
//	own pending entries,               └───────────────────────────────────┘
//	XAUTOCLAIM of dead consumers' entries
//
// It reads what redisstream.Publisher writes, and the standard
// subscriber can still read the stream.
//
// # Which one to use
//
// Use the standard subscriber for little traffic, or if each message
// has its own transaction. Use this one for commits in batches, for
// reports of lost entries, or for a fast takeover from dead processes.
// Handlers run concurrently and messages overtake each other: set
// [Config.Window] to 1 for strict order.
//
// # A message per read
//
// All entries of a read are one message, in the format of [Marshal]: few
// goroutines, messages and contexts. A handler calls [Unmarshal], and [Ack]
// for entries that are done early. Ack of the message acknowledges the rest.
// After a Nack each unacknowledged entry gets its own message, so that a bad
// entry delays no other.
//
// # Promises
//
//   - Delivery is at least once. An acknowledged entry is delivered again only
//     if Redis or this process dies before the XACK.
//   - First deliveries are in stream order.
//   - An entry that was trimmed before it was handled is logged and counted as
//     lost.
//   - With [Config.IsReady], entries that Redis loses before they are ready are
//     not delivered.
//   - After a start, entries pending under its own name come first. Those of
//     consumers silent for [Config.MinIdle] are claimed. Entries in flight are
//     refreshed.
//   - Errors of Redis never end a subscription. A missing group is created at
//     the first entry.
//   - After a stop, other consumers can claim unfinished entries at once. The
//     Redis client stays open.
package redisbatch
