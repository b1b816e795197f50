// Package tables has the statements that several packages share. The rows of
// a definition, a decision and a deletion are written when it is made, and
// by the writer again if a restored MySQL lacks them.
package tables
