// Package claimed looks up, redeems and releases claims. MySQL is the
// authority for their status. If a claim has no row yet, the routes wait
// until MySQL has applied the claim streams, see lookup.go.
package claimed
