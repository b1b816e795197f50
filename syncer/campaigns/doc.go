// Package campaigns stores what operators decide: campaigns and
// packets. A change is committed in MySQL, the authority, and then an
// Sender sends it to Redis. The package also reads claims.
package campaigns
