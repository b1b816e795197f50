// Package ledger tells, out of MySQL alone, everything that happened to the
// claims of a campaign.
//
// The ledger of a campaign is ordered by (at, id) and has two kinds of events.
// Accepted claims are the rows of claims and claims_archive: within a lot the
// time of a claim never falls while its seq rises (claim.lua sees to that), so
// they are read in order of seq and need no index by time. Everything else was
// decided in MySQL, and is a row of ledger_events, written by Put in the
// transaction that applies its entry of the claim stream.
//
// A reader must never be given an event and later find that an earlier one was
// missing. Two bounds see to that. Of accepted claims, horizon works out up to
// which time all of them are booked. Of decisions, Put books each one after the
// bound that readers last moved, and a reader that moves the bound waits for
// the transactions that are under way.
package ledger
