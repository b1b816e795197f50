// Package finance is the reference finance service. It credits the amount of
// each packet claim to its user's account, and the amount that is left over
// when a campaign closes to its sender's: one entry for each, whatever is
// redelivered.
//
// It is built on package consumer, as a service of others would be:
//
//	claim streams ─▶ consumer.Consumer (group finance) ─▶ Books.Handle … one transaction for many events ─▶ acked
//	                                 └▶ what can never be credited: parked, replayed by `dibs finance replay`
//
// The books are the tables accounts and account_entries. An entry's key is the
// id of the event, so an event that comes again finds its entry there; accounts
// move by the entries that went in, in the same transaction.
package finance
