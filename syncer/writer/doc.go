// Package writer decides when the entries of the claim streams are applied
// to MySQL, and how often an attempt is repeated.
//
//	consumer ─ Add ─▶ adder (a cell per partition)
//	  ─ a flush takes all cells ─▶ apply: one transaction
//
// After an unknown commit the offset shows whether it happened.
package writer
