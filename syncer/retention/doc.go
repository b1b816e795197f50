// Package retention takes away what no one needs any more: stream entries that every registered group has acknowledged, and old
// rows of the tables that are kept for people.
package retention
