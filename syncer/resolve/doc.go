// Package resolve decides what becomes of a claim after it was accepted: redeemed, released by its user, expired when its hold
// ran out, or returned to the sender when its campaign closed. Each is one transaction in MySQL with a row in outbox; the Relay
// tells Redis and the stream, as often as it must, and the claim's record there makes that count once.
package resolve
