// Package sqlstore opens MySQL, or the embedded SQLite, with the
// settings that all other code relies on.
//
// It classifies database errors in one table (FailureOf) and
// retries in one function (Retry). It also has helpers for
// transactions, pages and statements.
package sqlstore
