// Package settings has what is fixed once a database has campaigns: the
// installation it belongs to, the number of claim streams, and the secret
// of subjects.
package settings

// The names of settings.
const (
	installation  = "installation"
	source        = "events_of" // the installation whose events a ledger has
	partitions    = "partitions"
	subjectSecret = "subject_secret" // its fingerprint
)
