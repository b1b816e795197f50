// Package campaigns stores what an operator decides: the definitions of campaigns and their packets, in MySQL, which is their
// authority. A change is committed in MySQL first; then an Applier sends it to Redis. The package also reads claims for look-ups.
package campaigns
