// Package consumer reads the claim streams for a consumer group and brings every event to a Sink, in batches, or to a handler, one by one.
//
// The writer is a [Sink]. A service with a group of its own, as finance is, has a [HandleFunc]: what it refuses is retried, and what no
// retry will cure is parked in a [ParkingLot]. Reading and acknowledging is done by the subscriber of package redisbatch. On top of it
// watermill's Router runs this chain once for each read. A handler is called for each event, by a Sink that adds Recoverer and Timeout:
//
//	metrics ▸ CorrelationID ▸ decode ▸ trace ▸ Recoverer ▸ Sink; for an event that failed: Retry ▸ PoisonQueue (parking) ▸ Recoverer ▸ Sink
//
// A Sink settles each event of a batch by itself, and each is acknowledged by itself. The events that it refuses are submitted again,
// each in a batch of its own. Retry and PoisonQueue therefore act on single events only: one bad event does not hold up a batch.
//
// Delivery is at least once, and first deliveries are in stream order. For the other promises see package redisbatch.
package consumer
