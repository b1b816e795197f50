// Package finance is the reference finance service. It credits a packet
// claim's amount to the user's account. When a campaign closes, it credits
// what is left to the sender's. Each has one entry, whatever is redelivered.
//
// It uses package consumer as an external service would:
//
//	claim streams ─▶ consumer.Consumer (group finance)
//	  ─▶ Books.Handle: one transaction for many events ─▶ acked
//	  ─▶ what can never be credited: parked;
//	     `dibs finance replay` replays it
//
// The books are the tables accounts and account_entries. An entry's key is
// the event's id, so a redelivered event finds its entry. Accounts change
// in the transaction that inserts the entries.
package finance
