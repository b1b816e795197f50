// Package ledger reads, from MySQL alone, all events of a campaign's claims.
//
// A ledger is ordered by (at, id) and has two kinds of events. Accepted
// claims are rows of claims and claims_archive. claim.lua ensures that within
// a lot the time never falls as seq rises. So claims are read in seq order
// and need no index by time. If Redis came back older and gave seqs again, the
// writer records up to which seq that may not hold (lots.unordered_upto), and
// these claims are sorted. All other events were decided in MySQL. Put
// writes them to ledger_events, in the transaction that applies their entry
// of the claim stream.
//
// A reader must never find that an earlier event was missing.
// Two bounds ensure that:
//
//   - For accepted claims, horizon.go finds the time up to which
//     all are stored.
//   - For decisions, Put stores each after the bound that readers
//     last moved. A reader that moves the bound waits for running
//     transactions.
package ledger
