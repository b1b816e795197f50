// Package campaigns stores what an operator decides: campaigns and packets. A
// change is committed in MySQL, the authority, and then an Applier sends it to
// Redis. The package also reads claims.
package campaigns
