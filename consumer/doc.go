// Package consumer reads the claim streams for a consumer group and hands every event to a handler.
//
// [Consumer] reads for the writer's group, into a [Sink]. [Service] reads for a group of its own, as the finance service does: it
// retries what its handler refuses, and parks in a [ParkingLot] what no retry will cure.
//
// Both run watermill's Router on a message.Subscriber that is made for handlers which return once their batch is committed. It
// keeps a bounded window of entries in flight and acknowledges them in bulk, never before their handlers did. A Service gets a message
// for each entry; a Consumer gets one for each read, and its Sink settles the entries one by one:
//
//	XREADGROUP COUNT n ──▶ window ──▶ output channel ──▶ handler … Ack ──▶ XACK id id id …
//	       ▲                                               └ Nack ──▶ back-off ──▶ output channel
//	own pending entries, XAUTOCLAIM of silent consumers' entries
//
// It promises:
//   - Delivery is at least once. A message whose handler returned nil is delivered again only if Redis or this process dies before
//     the acknowledgement arrives.
//   - First deliveries come in stream order. A message that was refused comes again later; with Window 1 none overtakes it.
//   - An entry that cannot be read goes to the poison stream, with its fields, its id and the reason.
//   - An entry that was trimmed before it was handled is logged and counted as lost.
//   - Errors of Redis never end a subscription. A group that is gone is created again, from the start of the stream.
package consumer
