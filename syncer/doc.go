// Package syncer is the syncer role: a table of jobs, each with its period, and
// the lease of the leader that some of them need. The jobs live in the packages
// below this folder, the lowest first: writer, campaigns, residency, resolve,
// reconcile, shards, retention.
package syncer
