// Package syncer is the syncer role: a table of jobs, each with its period, and the lease of the leader that some of them need.
// The jobs live in the rooms below this folder, from the lowest up: writer, campaigns, residency, resolve, reconcile, retention.
package syncer
