// Package syncer is the syncer role: a table of jobs, each with its
// period, and the leader's lease that some of them need. The jobs are
// in the packages of this folder.
package syncer
