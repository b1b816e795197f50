// Package finance is the reference finance service: what a claim of a packet gave is credited to its user's account, and what
// was left over when a campaign closed to its sender's, one entry for each, whatever is redelivered.
//
// It stands on package consumer alone, as a service of others would:
//
//	claim streams ─▶ consumer.Service (group finance) ─▶ Books.Handle … one transaction for many events ─▶ acked
//	                                 └▶ what can never be credited: parked, replayed by `dibs finance replay`
//
// The books are the tables accounts and account_entries. An entry's key is the id of the event, so an event that comes again
// finds its entry there; accounts move by the entries that went in, in the same transaction.
package finance
