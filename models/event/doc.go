// Package event defines what claim streams hold: events, and how far a
// stream was read or applied.
package event
