// Package resolve decides accepted claims. They are redeemed, released
// by the user, expired with their hold, or returned to the sender of a
// closed campaign. One transaction in MySQL decides, and writes a row
// of outbox. The Relay delivers it to Redis and the stream at least
// once. The claim's record in Redis makes it count once.
package resolve
