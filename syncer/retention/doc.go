// Package retention deletes what is no longer needed: stream entries that every
// registered group has acknowledged, claims of ended campaigns, and old rows
// that only people read.
package retention
