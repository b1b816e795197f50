// Package tables has the rows of MySQL that are written or read in more than
// one place: a definition, a decision and a deletion when they are made,
// and by the writer again if a restored MySQL lacks them.
package tables
