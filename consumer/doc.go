// Package consumer reads the claim streams: for MySQL, and for services with a group of their own.
//
// An [Applier] reads for the writer, as group syncer. Its place in a stream is MySQL's offset, which it sets as the group's
// position at each read; nothing is acknowledged.
//
//	metrics ▸ trace ▸ Recoverer ▸ Log.Add        one message a read, the next one after its ack
//
// A [Consumer] reads for a service, such as finance, in a group with acknowledgements, by the subscriber of package redisbatch.
// It brings each event to a [HandleFunc]. What that refuses is retried, and what no retry will cure is parked in a
// [ParkingLot]; one bad event holds up no other.
//
//	metrics ▸ CorrelationID ▸ decode ▸ trace ▸ Recoverer ▸ handler; for an event that failed: Retry ▸ PoisonQueue (parking) ▸ handler
//
// Delivery to a service is at least once, and first deliveries are in stream order. For the other promises see package
// redisbatch.
package consumer
