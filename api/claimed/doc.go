// Package claimed answers the routes of claims that were made: look-ups,
// redeem and release. MySQL is the authority for what became of a claim. A
// claim that MySQL does not have yet is found in the claim streams, see
// unsynced.go.
package claimed
