// Package consumer reads the claim streams: for MySQL, and for services
// with a group of their own.
//
// An [Applier] reads for the writer, as group syncer. Each read sets
// the group's position to MySQL's offset; nothing is acknowledged.
//
//	metrics ▸ trace ▸ Recoverer ▸ Log.Add   a message per read; the ack
//	                                        starts the next one
//
// A [Consumer] reads for a service, such as finance, in a group with
// acknowledgements, through package redisbatch. It calls a [HandleFunc]
// for each event. Failures are retried, permanent ones are parked in a
// [ParkingLot]. A bad event delays no other.
//
//	metrics ▸ CorrelationID ▸ decode ▸ trace ▸ Recoverer ▸ handler
//	after a failure: Retry ▸ PoisonQueue (parking) ▸ handler
//
// Delivery to a service is at least once, and first deliveries are in
// stream order. For the other promises see package redisbatch.
package consumer
