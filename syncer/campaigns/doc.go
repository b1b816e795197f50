// Package campaigns keeps what an operator decides: the definitions of campaigns and their packets in MySQL, which is their
// authority. A change is committed in MySQL first; then the Applier brings it to Redis. It also reads claims for look-ups.
package campaigns
