// Package sqlstore opens MySQL, or the embedded SQLite, with the settings that
// all other code relies on. It classifies their errors in one table
// (FailureOf), tries again in one place (Retry), and has the helpers for
// transactions, pages and statements.
package sqlstore
