// Package syncertest is what the tests of the syncer's packages share: a stack
// of real servers with the parts between them, and what the books must say.
// Production code never imports it.
package syncertest
