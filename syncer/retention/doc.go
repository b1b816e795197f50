// Package retention deletes what is no longer needed. That is stream
// entries that every registered group has acknowledged, claims of ended
// campaigns, and old rows that only people read.
package retention
