// Package sqlstore opens MySQL, or the embedded SQLite, the way the rest of the code relies on, and says what can be done about
// an error of theirs: one table, one place that tries again.
package sqlstore
