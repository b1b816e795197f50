// Package syncertest is shared by the tests of the syncer's packages. It has
// a stack of real servers with the parts between them, and checks of their
// data. Production code never imports it.
package syncertest
