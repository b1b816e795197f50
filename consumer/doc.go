// Package consumer reads the claim streams: it is the way from Redis to whoever books the claims.
//
// [Subscriber] is a watermill message.Subscriber over Redis Streams for handlers that return only once a batch has been
// committed. It keeps a bounded window of unacked messages in flight, acks them in bulk, and never before the handler did:
//
//	XREADGROUP COUNT n ──▶ window ──▶ output channel ──▶ handler … Ack ──▶ XACK id id id …
//	       ▲                                               └ Nack ──▶ back-off ──▶ output channel
//	own pending, XAUTOCLAIM of the dead
//
// Any group and any handler may use it. What it promises:
//   - Delivery is at least once; what a handler has acked is redelivered only when Redis or this process dies first.
//   - First deliveries come in stream order. A message that was nacked comes again later; with Window 1 nothing overtakes it.
//   - An entry that can't be read goes to the poison stream with its fields, its id and the reason.
//   - An entry that is gone before it was handled is reported as a loss.
//   - Trouble with Redis never ends a subscription; a group that is gone is made again from the start of the stream.
//
// [Consumer] is the role built on it: one subscription per partition under one watermill Router, into a [Sink].
package consumer
