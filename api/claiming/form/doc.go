// Package form is what a claim looks like on the wire: its path, its bodies
// and their bounds, its answers and refusals, and all that in the OpenAPI
// document. Bodies are read field by field and answers are written by hand:
// reflection would be most of a claim's time.
package form
