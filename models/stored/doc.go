// Package stored defines MySQL's rows.
package stored
