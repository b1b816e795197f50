// Package sums adds what a flush wrote to the counters of lots: a row of
// stock_flushes a lot, and one statement that adds these rows to all lots.
// A lot that another transaction locks gets them later.
package sums
