// Package consumer reads the claim streams for a consumer group and brings every event to a Sink, in batches, or to a handler, one by one.
//
// The writer is a [Sink]. A service with a group of its own, as finance is, has a [HandleFunc]: what it refuses is retried, and what no
// retry will cure is parked in a [ParkingLot]. Reading and acknowledging is the subscriber's of package redisbatch. On top of it
// watermill's Router runs this chain, once for each read with a Sink and once for each event with a handler:
//
//	metrics ▸ CorrelationID ▸ PoisonQueue (parking) ▸ decode ▸ trace ▸ Retry ▸ Recoverer ▸ Timeout (handler only) ▸ Sink or handler
//
// A Sink accepts each event of a batch by itself. When it refuses some, the message is nacked, and these events come again, each in
// a message of its own. Retry and PoisonQueue therefore act on single events only: one bad event does not hold up a batch.
//
// Delivery is at least once, and first deliveries are in stream order. For the other promises see package redisbatch.
package consumer
